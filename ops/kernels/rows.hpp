// Rows handled by teams of work-items, and reductions within a team in a fixed order: same bits when run again.
// A team is a sub-group (the lanes of a vector register on CPUs, no barriers) or, for rows too wide for that on GPUs, a whole work-group.
#pragma once

#include "values.hpp"

struct SubGroupTeam {
  sycl::sub_group group = syclext::this_work_item::get_sub_group();
  long lane() const { return group.get_local_linear_id(); }
  long size() const { return group.get_local_linear_range(); }
  long index() const { return group.get_group_linear_id(); }  // of the work-group's teams
  long teams() const { return group.get_group_linear_range(); }
};

struct WorkGroupTeam {
  sycl::group<1> group = item_1d().get_group();
  long lane() const { return group.get_local_linear_id(); }
  long size() const { return group.get_local_linear_range(); }
  long index() const { return 0; }
  long teams() const { return 1; }
};

template <class Team>
inline float team_sum(const Team& team, float value) {
  return sycl::reduce_over_group(team.group, value, sycl::plus<float>());
}
template <class Team>
inline float team_max(const Team& team, float value) {
  return sycl::reduce_over_group(team.group, value, sycl::maximum<float>());
}

// Each work-group has `chunk` consecutive ones of `rows` rows, dealt to its teams: body(team, row).
template <class Team, class Body>
inline void for_team_rows(long rows, long chunk, Body body) {
  const Team team;
  const long begin = static_cast<long>(item_1d().get_group(0)) * chunk;
  const long end = lesser(begin + chunk, rows);
  for (long row = begin + team.index(); row < end; row += team.teams()) body(team, row);
}

// body(i) for [0, width), dealt to the team's work-items.
template <class Team, class Body>
inline void for_width(const Team& team, long width, Body body) {
  const long lane = team.lane(), size = team.size();
  long i = 0;
  for (; i + size <= width; i += size) body(i + lane);
  if (i + lane < width) body(i + lane);
}

// Sum of term(i) over [0, width), for every work-item of the team. Four accumulators hide the latency of additions.
template <class Team, class Term>
inline float row_sum(const Team& team, long width, Term term) {
  const long lane = team.lane(), size = team.size();
  float a = 0, b = 0, c = 0, d = 0;
  long i = 0;
  for (; i + 4 * size <= width; i += 4 * size) {
    a += term(i + lane);
    b += term(i + size + lane);
    c += term(i + 2 * size + lane);
    d += term(i + 3 * size + lane);
  }
  for (; i + size <= width; i += size) a += term(i + lane);
  if (i + lane < width) b += term(i + lane);
  return team_sum(team, (a + b) + (c + d));
}

// The largest term(i) over [0, width).
template <class Team, class Term>
inline float row_max(const Team& team, long width, Term term) {
  const long lane = team.lane(), size = team.size();
  float a = -__builtin_inff(), b = a;
  long i = 0;
  for (; i + 2 * size <= width; i += 2 * size) {
    a = sycl::fmax(a, term(i + lane));
    b = sycl::fmax(b, term(i + size + lane));
  }
  for (; i + size <= width; i += size) a = sycl::fmax(a, term(i + lane));
  if (i + lane < width) b = sycl::fmax(b, term(i + lane));
  return team_max(team, sycl::fmax(a, b));
}

// STAMP(suffix, element type, Team): the suffix ends in _wide for whole work-groups.
#define FOR_EACH_TYPE_AND_TEAM(STAMP)   \
  STAMP(f32, float, SubGroupTeam)       \
  STAMP(bf16, bf16_bits, SubGroupTeam)  \
  STAMP(f32_wide, float, WorkGroupTeam) \
  STAMP(bf16_wide, bf16_bits, WorkGroupTeam)
