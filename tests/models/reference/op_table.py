"""Ops of PyTorch, one line each: the shape of a sample and how the op is called. make_op_reference.py makes the references of
tests/runs/test_program_ops.cpp of it."""
import torch, torch.nn.functional as F

OPS = {}
ROWS, LINE, IMAGE, VOLUME = (4, 6), (2, 12), (2, 6, 5), (2, 4, 5, 3)
T = torch.tensor


def each(shape, **calls):
    for name, call in calls.items():
        OPS[name] = (shape, call)


def setitem(x, s):
    y = x.clone()
    y[:, 1] = 0.5
    y[:, :, 2] += x[:, :, 0]
    y[:, 2:, ::2] *= 3
    return y


def bounds(x, s):
    """What has a gradient at the very places where functions bend."""
    v = x - x.detach() + T([-3.0, -1.0, 0.0, 1.0, 3.0, 6.0])
    return torch.cat([F.hardtanh(v), F.hardswish(v), F.relu6(v), F.hardsigmoid(v), F.relu(v), v.clamp(-1, 1), v.abs(), v ** 0, F.elu(v), F.leaky_relu(v),
                      torch.copysign(v, T(-1.0)), F.hinge_embedding_loss(v, -torch.ones_like(v), reduction="none"), F.softshrink(v, 1.0), F.hardshrink(v, 1.0),
                      F.threshold(v, 1.0, 2.0), F.margin_ranking_loss(v, T(1.0).expand_as(v), torch.ones_like(v), reduction="none")], 1)


def experts(x, s):
    """Rows by the matrix of one of three experts each, as transformers has it."""
    import transformers.integrations.moe  # noqa: F401
    rows, ids = x.reshape(-1, 6), s.ids[:, :4].reshape(-1) % 3
    sorted_ids, order = torch.sort(ids)
    ends = torch.histc(sorted_ids.float(), bins=3, min=0, max=2).cumsum(0, dtype=torch.int32)
    out = torch.ops.transformers.grouped_mm_fallback(rows[order], s.w3.flatten()[:72].view(3, 6, 4), ends)
    back = torch.empty_like(order)
    back[order] = torch.arange(order.shape[0])
    return out[back].view(-1, 4, 4)


# x: the op's own tensor, trained. s: what all share. s.ids: [B, 6] integers 0..3; s.k: [B] likewise; s.mask: [B, 4, 6] booleans; s.y: [B, 4, 6] in 0..1;
# s.grid, s.grid3: [B, ...] places for grid_sample; s.w1, s.w2, s.w3, s.b3: weights; s.img: [B, 3, 5, 4].
each(ROWS, relu=lambda x, s: F.relu(x), silu=lambda x, s: F.silu(x), mish=lambda x, s: F.mish(x), elu=lambda x, s: F.elu(x, 0.7), selu=lambda x, s: F.selu(x),
     celu=lambda x, s: F.celu(x, 1.3), gelu=lambda x, s: F.gelu(x), gelu_tanh=lambda x, s: F.gelu(x, approximate="tanh"), glu=lambda x, s: F.glu(x, 1),
     hardtanh=lambda x, s: F.hardtanh(x, -0.5, 0.7), leaky=lambda x, s: F.leaky_relu(x, 0.2), relu6=lambda x, s: F.relu6(x * 5), logsigmoid=lambda x, s: F.logsigmoid(x),
     softsign=lambda x, s: F.softsign(x), tanhshrink=lambda x, s: F.tanhshrink(x), softshrink=lambda x, s: F.softshrink(x, 0.3),
     hardshrink=lambda x, s: F.hardshrink(x, 0.3), softplus=lambda x, s: F.softplus(x, 2.0, 1.5), softmin=lambda x, s: F.softmin(x, -1),
     softmax0=lambda x, s: F.softmax(x, 1), log_softmax=lambda x, s: F.log_softmax(x, 2), hardsigmoid=lambda x, s: F.hardsigmoid(x * 3),
     hardswish=lambda x, s: F.hardswish(x * 3), threshold=lambda x, s: F.threshold(x, 0.1, -2.0), rrelu_eval=lambda x, s: F.rrelu(x, training=False),
     exp=lambda x, s: x.exp(), expm1=lambda x, s: x.expm1(), exp2=lambda x, s: x.exp2(), log=lambda x, s: (x * x + 0.5).log(), log1p=lambda x, s: (x * x).log1p(),
     log2=lambda x, s: (x * x + 1).log2(), log10=lambda x, s: (x * x + 1).log10(), sqrt=lambda x, s: (x * x + 1).sqrt(), rsqrt=lambda x, s: (x * x + 1).rsqrt(),
     sin=lambda x, s: x.sin(), cos=lambda x, s: x.cos(), tan=lambda x, s: (x * 0.3).tan(), asin=lambda x, s: (x.tanh() * 0.8).asin(),
     acos=lambda x, s: (x.tanh() * 0.8).acos(), atan=lambda x, s: x.atan(), sinh=lambda x, s: x.sinh(), cosh=lambda x, s: x.cosh(), asinh=lambda x, s: x.asinh(),
     acosh=lambda x, s: (x * x + 1.5).acosh(), atanh=lambda x, s: (x.tanh() * 0.8).atanh(), erf=lambda x, s: x.erf(), erfc=lambda x, s: x.erfc(),
     erfinv=lambda x, s: (x.tanh() * 0.8).erfinv(), lgamma=lambda x, s: (x * x + 0.5).lgamma(), digamma=lambda x, s: (x * x + 0.5).digamma(),
     sinc=lambda x, s: torch.sinc(x), logit=lambda x, s: torch.logit(x.sigmoid(), 1e-3), abs=lambda x, s: x.abs(), neg=lambda x, s: -x, sign=lambda x, s: x * x.sign(),
     reciprocal=lambda x, s: 1 / (x * x + 1), pow3=lambda x, s: x ** 3, pow25=lambda x, s: (x * x + 0.3) ** 2.5, pow_neg=lambda x, s: (x * x + 1) ** -1,
     rpow=lambda x, s: 2.0 ** x, powt=lambda x, s: (x * x + 0.5) ** s.y, square=lambda x, s: x.square(), clamp=lambda x, s: x.clamp(-0.5, 0.8),
     clamp_min=lambda x, s: x.clamp_min(0.1), clamp_max=lambda x, s: x.clamp(max=0.3), clampt=lambda x, s: torch.clamp(x, min=s.y - 1, max=s.y),
     floor=lambda x, s: x * x.floor(), round=lambda x, s: x + x.round(), round2=lambda x, s: x + torch.round(x, decimals=1), trunc=lambda x, s: x + x.trunc(),
     frac=lambda x, s: x.frac(), fmod=lambda x, s: torch.fmod(x, 0.7), remainder=lambda x, s: torch.remainder(x, 0.7), div=lambda x, s: x / (s.y + 1),
     div_floor=lambda x, s: x + torch.div(x, 0.3, rounding_mode="floor"), div_trunc=lambda x, s: x + torch.div(x, 0.3, rounding_mode="trunc"),
     rdiv=lambda x, s: 2.0 / (x * x + 1), rsub=lambda x, s: 1 - x, addcmul=lambda x, s: torch.addcmul(x, x, s.y, value=0.3),
     addcdiv=lambda x, s: torch.addcdiv(x, x, s.y + 1, value=0.3), lerp=lambda x, s: torch.lerp(x, s.y, 0.3), lerpt=lambda x, s: torch.lerp(x, s.y, s.y),
     atan2=lambda x, s: torch.atan2(x, s.y + 0.5), hypot=lambda x, s: torch.hypot(x, s.y), maximum=lambda x, s: torch.maximum(x, s.y),
     minimum=lambda x, s: torch.minimum(x, s.y), fmax=lambda x, s: torch.fmax(x, s.y), logaddexp=lambda x, s: torch.logaddexp(x, s.y),
     logaddexp2=lambda x, s: torch.logaddexp2(x, s.y), xlogy=lambda x, s: torch.xlogy(s.y, x * x + 1), copysign=lambda x, s: torch.copysign(x, s.y - 0.5),
     nan_to_num=lambda x, s: torch.nan_to_num(x), float_power=lambda x, s: torch.float_power(x * x + 1, 2).float(), add_alpha=lambda x, s: torch.add(x, s.y, alpha=2),
     sub_alpha=lambda x, s: torch.sub(x, s.y, alpha=2), mul_scalar=lambda x, s: x * 3, true_divide=lambda x, s: torch.true_divide(x, 3), sgn=lambda x, s: x * torch.sgn(x),
     deg2rad=lambda x, s: torch.deg2rad(x * 50), rad2deg=lambda x, s: torch.rad2deg(x), signbit=lambda x, s: x * torch.signbit(x), prelu=lambda x, s: F.prelu(x, T([0.2, 0.3, 0.1, 0.5])))
each(ROWS, sum_all=lambda x, s: x + x.sum((1, 2), keepdim=True), sum_dim=lambda x, s: x.sum(1), mean_dim=lambda x, s: x.mean(-1, keepdim=True),
     mean_all=lambda x, s: x * x.mean(), amax=lambda x, s: x.amax(1), amin=lambda x, s: x.amin((1, 2)), max_dim=lambda x, s: x.max(1)[0],
     min_dim=lambda x, s: x.min(-1, keepdim=True).values, max_all=lambda x, s: x - x.max(), prod=lambda x, s: x.prod(2), prod_all=lambda x, s: x * x[:2].prod(),
     var=lambda x, s: x.var(1), var0=lambda x, s: x.var((1, 2), correction=0), std=lambda x, s: x.std(-1),
     var_mean=lambda x, s: torch.var_mean(x, 1)[0] + torch.var_mean(x, 1)[1], std_mean=lambda x, s: sum(torch.std_mean(x, 2)), norm1=lambda x, s: x.norm(1, -1),
     norm2=lambda x, s: x.norm(dim=1), norm3=lambda x, s: torch.linalg.vector_norm(x, 3, 1), norm_inf=lambda x, s: torch.linalg.vector_norm(x, float("inf"), -1),
     norm0=lambda x, s: x.sum(-1) + torch.linalg.vector_norm(x, 0, -1), normf=lambda x, s: torch.linalg.matrix_norm(x), normall=lambda x, s: x / x.norm(),
     normalize=lambda x, s: F.normalize(x, dim=1), normalize1=lambda x, s: F.normalize(x, p=1, dim=-1), logsumexp=lambda x, s: x.logsumexp((1, 2)),
     median=lambda x, s: x.median(1)[0], nanmean=lambda x, s: x.nanmean(1), nansum=lambda x, s: x.nansum(1), kthvalue=lambda x, s: x.kthvalue(2, 1)[0],
     quantile=lambda x, s: x.quantile(0.3, dim=1), cummax=lambda x, s: x.cummax(1)[0], cummin=lambda x, s: x.cummin(1)[0], cumsum=lambda x, s: x.cumsum(1),
     cumprod=lambda x, s: x.cumprod(-1), logcumsumexp=lambda x, s: x.logcumsumexp(2), aminmax=lambda x, s: sum(torch.aminmax(x, dim=1)),
     count_nonzero=lambda x, s: x * torch.count_nonzero(x > 0, dim=1).unsqueeze(1), argmax=lambda x, s: x * x.argmax(1, keepdim=True),
     argmin_all=lambda x, s: x + x[:1].argmin(), any=lambda x, s: x * (x > 0.5).any(1, keepdim=True), all=lambda x, s: x * (x > -1).all(2, keepdim=True),
     topk=lambda x, s: x.topk(3, 2)[0], topk_small=lambda x, s: x.topk(2, 1, largest=False)[0], sort=lambda x, s: x.sort(1)[0],
     sort_desc=lambda x, s: x.sort(-1, descending=True)[0], argsort=lambda x, s: x.gather(2, x.argsort(2)),
     msort=lambda x, s: torch.msort(x.transpose(0, 1)).transpose(0, 1), trace=lambda x, s: torch.einsum("bii->b", x[:, :4, :4]), dist=lambda x, s: x * torch.dist(x, s.y),
     cov=lambda x, s: x @ x.mT)
each(ROWS, view=lambda x, s: x.view(-1, 24), reshape=lambda x, s: x.mT.reshape(-1, 3, 8), permute=lambda x, s: x.permute(0, 2, 1),
     transpose=lambda x, s: x.transpose(1, 2).contiguous(), mT=lambda x, s: x.mT, flip=lambda x, s: x.flip(1, 2), fliplr=lambda x, s: x.fliplr(),
     rot90=lambda x, s: x.rot90(1, (1, 2)), roll=lambda x, s: x.roll((1, 2), (1, 2)), roll_all=lambda x, s: x[:, 0].roll(1, 1), roll_batch=lambda x, s: x.roll(1, 0),
     roll_flat=lambda x, s: x.roll(5), chunk=lambda x, s: x.chunk(2, 1)[1], split=lambda x, s: x.split([1, 3], 1)[1], tensor_split=lambda x, s: x.tensor_split(3, 1)[2],
     unbind=lambda x, s: x.unbind(1)[2], stack=lambda x, s: torch.stack([x, s.y], 1), cat=lambda x, s: torch.cat([x, s.y, x], 2), hstack=lambda x, s: torch.hstack([x, x]),
     dstack=lambda x, s: torch.dstack([x, s.y]), column_stack=lambda x, s: torch.column_stack([x[:, 0], x[:, 1]]), select=lambda x, s: x.select(1, -1),
     narrow=lambda x, s: x.narrow(2, 1, 3), slice_step=lambda x, s: x[:, ::2, 1::3], slice_none=lambda x, s: x[:, None, ..., -2:],
     squeeze=lambda x, s: x[:, :1].squeeze(1), unsqueeze=lambda x, s: x.unsqueeze(-1), unflatten=lambda x, s: x.unflatten(2, (2, -1)), flatten=lambda x, s: x.flatten(1),
     repeat=lambda x, s: x.repeat(1, 2, 1), tile=lambda x, s: x.tile(2, 1), expand=lambda x, s: x[:, :1].expand(-1, 5, 6),
     repeat_interleave=lambda x, s: x.repeat_interleave(2, 1), repeat_interleave_t=lambda x, s: x.repeat_interleave(T([1, 2, 1, 3]), 1, output_size=7),
     swapaxes=lambda x, s: x.swapaxes(1, 2), movedim=lambda x, s: x.movedim(2, 1), tril=lambda x, s: x.tril(-1), triu=lambda x, s: x.triu(1),
     diagonal=lambda x, s: x.diagonal(dim1=1, dim2=2), diagonal1=lambda x, s: x.diagonal(1, 1, 2), diag_embed=lambda x, s: x[:, 0].diag_embed(),
     diag_embed1=lambda x, s: x[:, 0].diag_embed(1), unfold=lambda x, s: x.unfold(2, 3, 2), atleast=lambda x, s: torch.atleast_3d(x),
     ravel=lambda x, s: x + x[0].ravel().sum(), view_as=lambda x, s: x.view_as(s.y), pad=lambda x, s: F.pad(x, (1, 2, 0, 1), value=0.5),
     pad_neg=lambda x, s: F.pad(x, (-1, 1)), broadcast=lambda x, s: torch.broadcast_tensors(x[:, :1], s.y)[0],
     meshgrid=lambda x, s: x + torch.meshgrid(torch.arange(4.0), torch.arange(6.0), indexing="ij")[0], split_unequal=lambda x, s: x.split(4, 2)[1],
     hsplit=lambda x, s: x.hsplit(2)[0], index_neg=lambda x, s: x[:, [-1, 0, 0]], bcast_sub=lambda x, s: x.unsqueeze(1) - x.unsqueeze(2),
     tril_indices=lambda x, s: x[:, torch.tril_indices(4, 4)[0], torch.tril_indices(4, 4)[1]])
each(ROWS, gather=lambda x, s: x.gather(1, s.ids.unsqueeze(1)), gather_short=lambda x, s: x.gather(2, s.ids[:, :2].unsqueeze(2)),
     index_select=lambda x, s: x.index_select(1, T([2, 0, 2])), index=lambda x, s: x[:, s.ids[0]], index2=lambda x, s: x[torch.arange(x.shape[0]), s.k],
     index_pair=lambda x, s: x[:, s.ids[0, :3], s.ids[1, :3]], take=lambda x, s: x * torch.take(x, T([0, 1])).sum(),
     scatter=lambda x, s: x.scatter(1, s.ids.unsqueeze(1), 0.5), scatter_src=lambda x, s: torch.zeros_like(x).scatter(1, x.argsort(1), x),
     scatter_add=lambda x, s: x.scatter_add(1, s.ids.unsqueeze(1), s.y[:, :1] * x[:, :1]), scatter_part=lambda x, s: x.scatter(2, s.ids[:, :2].unsqueeze(2), 1.5),
     scatter_reduce=lambda x, s: x.scatter_reduce(1, s.ids.unsqueeze(1), x[:, :1], "sum"),
     scatter_amax=lambda x, s: x.scatter_reduce(1, s.ids.unsqueeze(1), x[:, :1] * 2, "amax"),
     scatter_mean=lambda x, s: x.scatter_reduce(1, s.ids.unsqueeze(1), x[:, :1], "mean", include_self=False), index_add=lambda x, s: x.index_add(1, T([0, 2]), x[:, :2]),
     index_copy=lambda x, s: x.index_copy(1, T([0, 2]), x[:, 1:3]), index_fill=lambda x, s: x.index_fill(2, T([1, 3]), 0.1),
     index_put=lambda x, s: x.index_put((torch.arange(x.shape[0]), s.k), x[:, 0] * 2),
     index_put_acc=lambda x, s: x.index_put((torch.arange(x.shape[0]), s.k), x[:, 0], accumulate=True), masked_fill=lambda x, s: x.masked_fill(s.mask, 0.3),
     where=lambda x, s: torch.where(s.mask, x, s.y), where_scalar=lambda x, s: torch.where(x > 0, x, 0.2), one_hot=lambda x, s: x * F.one_hot(s.ids, 4).mT,
     bucketize=lambda x, s: x * torch.bucketize(x, T([-0.5, 0.0, 0.5])), searchsorted=lambda x, s: x * torch.searchsorted(T([-0.5, 0.0, 0.5]), x),
     isin=lambda x, s: x * torch.isin(s.ids, T([1, 2])).unsqueeze(1), select_scatter=lambda x, s: x.select_scatter(x[:, 1] * 2, 1, 0),
     slice_scatter=lambda x, s: x.slice_scatter(x[:, :2] * 2, 1, 1, 3), embedding=lambda x, s: F.embedding(s.ids, x[0]),
     embedding_bag=lambda x, s: F.embedding_bag(s.ids, x[0], mode="mean"),
     embedding_bag_sum=lambda x, s: F.embedding_bag(s.ids, x[0], mode="sum", per_sample_weights=s.y[:, 0]),
     embedding_bag_max=lambda x, s: F.embedding_bag(s.ids, x[0], mode="max"),
     embedding_bag_off=lambda x, s: F.embedding_bag(s.ids.flatten(), x[0], torch.arange(s.ids.shape[0]) * 6), setitem=lambda x, s: setitem(x, s),
     inplace=lambda x, s: (x * 1).mul_(2).add_(s.y).clamp_(max=2).relu_(), cross=lambda x, s: torch.linalg.cross(x[:, :, :3], s.y[:, :, :3]),
     bitops=lambda x, s: x * ((s.ids & 1) | (s.ids >> 1) ^ 2).unsqueeze(1), shifts=lambda x, s: x * (s.ids << 1).unsqueeze(1),
     int_math=lambda x, s: x * ((s.ids * 7 % 5 - 2) // 2 + s.ids ** 2).unsqueeze(1).float(), logical=lambda x, s: x * ((x > 0) & ~s.mask | (s.y > 0.5)).float(),
     logical2=lambda x, s: x * torch.logical_xor(s.mask, x > 0), to_int=lambda x, s: x * (x * 3).long(), diff=lambda x, s: x.diff(dim=1),
     trapezoid=lambda x, s: torch.trapezoid(x, dim=1))
each(ROWS, matmul=lambda x, s: x @ s.y.mT, bmm=lambda x, s: torch.bmm(x, x.mT), baddbmm=lambda x, s: torch.baddbmm(x[:, :, :4], x, s.y.mT, beta=0.5, alpha=2),
     addbmm=lambda x, s: x @ torch.addbmm(torch.zeros(6, 6), x.mT, x), einsum=lambda x, s: torch.einsum("bij,bkj->bik", x, s.y),
     einsum3=lambda x, s: torch.einsum("bij,bkj,bkl->bil", x, s.y, x), einsum_dots=lambda x, s: torch.einsum("...ij,...ij->...i", x, x),
     einsum_outer=lambda x, s: torch.einsum("bi,bj->bij", x[:, 0], x[:, 1]), tensordot=lambda x, s: torch.tensordot(x, torch.ones(6, 3), 1),
     outer=lambda x, s: x + torch.outer(x[0, :, 0], x[0, 0]), mv=lambda x, s: x @ x[0, 0], kron=lambda x, s: x * torch.kron(x[0, :2, :2], T([[1.0, 2, 3], [3, 4, 5]])),
     inner=lambda x, s: torch.inner(x, x[0]), vecdot=lambda x, s: torch.linalg.vecdot(x, s.y), chain=lambda x, s: torch.linalg.multi_dot([x[0], x[0].mT, x[0]]) + x,
     matrix_power=lambda x, s: torch.linalg.matrix_power(x[:, :, :4] * 0.3, 3), addmm=lambda x, s: torch.addmm(x[0, :, :4], x[0], x[1].mT, beta=0.3) + x[:, :, :4],
     addmv=lambda x, s: torch.addmv(x[0, :, 0], x[0], x[0, 0]) + x[:, :, 0], dot=lambda x, s: x * torch.dot(x[0, 0], x[0, 1]), cdist=lambda x, s: torch.cdist(x, s.y),
     cdist1=lambda x, s: torch.cdist(x, s.y, p=1), pdist=lambda x, s: F.pairwise_distance(x, s.y), pdist1=lambda x, s: F.pairwise_distance(x, s.y, p=1),
     cosine=lambda x, s: F.cosine_similarity(x, s.y, dim=1), bilinear=lambda x, s: F.bilinear(x, x, torch.ones(2, 6, 6) * 0.1))
each(ROWS, sdpa=lambda x, s: F.scaled_dot_product_attention(x.view(-1, 2, 4, 3), x.view(-1, 2, 4, 3), s.y.view(-1, 2, 4, 3)),
     sdpa_causal=lambda x, s: F.scaled_dot_product_attention(x.view(-1, 2, 4, 3), s.y.view(-1, 2, 4, 3), x.view(-1, 2, 4, 3), is_causal=True),
     sdpa_mask=lambda x, s: F.scaled_dot_product_attention(x.view(-1, 2, 4, 3), x.view(-1, 2, 4, 3), s.y.view(-1, 2, 4, 3), attn_mask=(torch.ones(4, 4) > 0).tril(1)),
     sdpa_bias=lambda x, s: F.scaled_dot_product_attention(x.view(-1, 2, 4, 3), x.view(-1, 2, 4, 3), s.y.view(-1, 2, 4, 3), attn_mask=x[:, :, :4].unsqueeze(1), scale=0.3),
     sdpa_gqa=lambda x, s: F.scaled_dot_product_attention(x.view(-1, 4, 2, 3), x[:, :2].view(-1, 2, 2, 3), s.y[:, :2].view(-1, 2, 2, 3), enable_gqa=True),
     sdpa_3d=lambda x, s: F.scaled_dot_product_attention(x, s.y, x))
each(ROWS, layer_norm=lambda x, s: F.layer_norm(x, (4, 6)), layer_norm1=lambda x, s: F.layer_norm(x, (6,), torch.linspace(0.5, 1, 6), None),
     rms_norm=lambda x, s: F.rms_norm(x, (6,), torch.linspace(0.5, 1, 6), 1e-5), group_norm=lambda x, s: F.group_norm(x, 2, torch.linspace(0.5, 1, 4)),
     instance_norm=lambda x, s: F.instance_norm(x), batch_norm=lambda x, s: F.batch_norm(x, None, None, training=True),
     lrn=lambda x, s: F.local_response_norm(x, 3, 0.1, 0.75, 1.0), mvn=lambda x, s: (x - x.mean((0, 2), keepdim=True)) / (x.var((0, 2), keepdim=True) + 1).sqrt(),
     mse=lambda x, s: x * F.mse_loss(x, s.y), l1=lambda x, s: F.l1_loss(x, s.y, reduction="none"),
     smooth_l1=lambda x, s: F.smooth_l1_loss(x, s.y, beta=0.3, reduction="none"), huber=lambda x, s: F.huber_loss(x, s.y, delta=0.4, reduction="none"),
     bce=lambda x, s: F.binary_cross_entropy(x.sigmoid(), s.y, reduction="none"), bce_w=lambda x, s: x * F.binary_cross_entropy(x.sigmoid(), s.y, weight=s.y),
     bce_logits=lambda x, s: F.binary_cross_entropy_with_logits(x, s.y, pos_weight=T(2.0), reduction="none"), ce=lambda x, s: x * F.cross_entropy(x, s.ids),
     ce_w=lambda x, s: x * F.cross_entropy(x, s.ids, weight=T([1.0, 2, 0.5, 1]), label_smoothing=0.1),
     ce_ignore=lambda x, s: F.cross_entropy(x, s.ids, ignore_index=2, reduction="none"), ce_prob=lambda x, s: F.cross_entropy(x, s.y.softmax(1), reduction="none"),
     ce_prob_w=lambda x, s: x * F.cross_entropy(x, s.y.softmax(1), label_smoothing=0.2, weight=T([1.0, 2, 0.5, 1])),
     nll=lambda x, s: F.nll_loss(F.log_softmax(x, 1), s.ids, reduction="none"), kl=lambda x, s: x * F.kl_div(F.log_softmax(x, -1), s.y.softmax(-1), reduction="batchmean"),
     kl_log=lambda x, s: F.kl_div(F.log_softmax(x, -1), F.log_softmax(s.y, -1), reduction="none", log_target=True), poisson=lambda x, s: x * F.poisson_nll_loss(x, s.y),
     poisson_full=lambda x, s: x * F.poisson_nll_loss(x, s.y * 4, full=True), margin=lambda x, s: x * F.margin_ranking_loss(x, s.y, torch.ones_like(x)),
     hinge=lambda x, s: F.hinge_embedding_loss(x, s.y.round() * 2 - 1, reduction="none"), soft_margin=lambda x, s: x * F.soft_margin_loss(x, s.y.round() * 2 - 1),
     triplet=lambda x, s: F.triplet_margin_loss(x, s.y, x * 0.3, reduction="none"),
     triplet_swap=lambda x, s: F.triplet_margin_loss(x, s.y, x * 0.3, swap=True, reduction="none"),
     multi_margin=lambda x, s: F.multi_margin_loss(x[:, 0], s.k, reduction="none"),
     multilabel=lambda x, s: F.multilabel_soft_margin_loss(x[:, 0], s.y[:, 0].round(), reduction="none"),
     cos_emb=lambda x, s: F.cosine_embedding_loss(x[:, 0], s.y[:, 0], s.k.float().clamp(0, 1) * 2 - 1, reduction="none"))
each(IMAGE, conv2d=lambda x, s: F.conv2d(x, s.w2, s.b3, stride=2, padding=1), conv2d_same=lambda x, s: F.conv2d(x, s.w2, padding="same", dilation=2),
     conv2d_asym=lambda x, s: F.conv2d(x, s.w2[:, :, :1], padding=(0, 1), stride=(2, 1)),
     conv_t2d=lambda x, s: F.conv_transpose2d(x, s.w2.transpose(0, 1), s.b3, stride=2, padding=1, output_padding=1),
     conv_group=lambda x, s: F.conv2d(x, s.w2[:2, :1], groups=2), conv_t_group=lambda x, s: F.conv_transpose2d(x, s.w2[:2, :1], groups=2, dilation=2),
     conv_unbatched=lambda x, s: F.conv2d(x[0], s.w2).unsqueeze(0) + x[:, :1, :1, :1], maxpool=lambda x, s: F.max_pool2d(x, 2),
     maxpool_pad=lambda x, s: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), maxpool_dil=lambda x, s: F.max_pool2d(x, (2, 3), 1, dilation=(2, 1)),
     maxpool_idx=lambda x, s: F.max_pool2d(x, 2, return_indices=True)[0], avgpool=lambda x, s: F.avg_pool2d(x, 3, 2, 1),
     avgpool_ceil=lambda x, s: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), avgpool_div=lambda x, s: F.avg_pool2d(x, (3, 2), divisor_override=5),
     lppool=lambda x, s: F.lp_pool2d(x, 2, 2), adaptive_avg=lambda x, s: F.adaptive_avg_pool2d(x, (4, 3)), adaptive_max=lambda x, s: F.adaptive_max_pool2d(x, (4, 3)),
     adaptive_none=lambda x, s: F.adaptive_avg_pool2d(x, (None, 2)),
     max_unpool=lambda x, s: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=(6, 5)), up_nearest=lambda x, s: F.interpolate(x, scale_factor=2),
     up_exact=lambda x, s: F.interpolate(x, size=(9, 4), mode="nearest-exact"), up_bilinear=lambda x, s: F.interpolate(x, size=(9, 4), mode="bilinear"),
     up_bilinear_a=lambda x, s: F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True),
     up_bicubic=lambda x, s: F.interpolate(x, scale_factor=2, mode="bicubic"), up_bicubic_a=lambda x, s: F.interpolate(x, size=(9, 7), mode="bicubic", align_corners=True),
     up_area=lambda x, s: F.interpolate(x, size=(3, 3), mode="area"), up_aa=lambda x, s: F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
     up_aa_cubic=lambda x, s: F.interpolate(x, size=(3, 8), mode="bicubic", antialias=True), grid=lambda x, s: F.grid_sample(x, s.grid, align_corners=False),
     grid_near=lambda x, s: F.grid_sample(x, s.grid, mode="nearest", align_corners=True),
     grid_border=lambda x, s: F.grid_sample(x, s.grid * 1.3, padding_mode="border", align_corners=True),
     grid_reflect=lambda x, s: F.grid_sample(x, s.grid * 1.3, padding_mode="reflection", align_corners=False),
     grid_cubic=lambda x, s: F.grid_sample(x, s.grid, mode="bicubic", align_corners=False),
     grid_grad=lambda x, s: F.grid_sample(s.img, (x[:, :, :, :4].permute(0, 2, 3, 1)).tanh() * 0.9, align_corners=False),
     affine_grid=lambda x, s: F.grid_sample(s.img, F.affine_grid(x[:, :, 0, :3] * 0.3, s.img.shape, align_corners=False), align_corners=False),
     reflect=lambda x, s: F.pad(x, (1, 2, 2, 1), mode="reflect"), replicate=lambda x, s: F.pad(x, (1, 2, 2, 1), mode="replicate"),
     circular=lambda x, s: F.pad(x, (1, 2, 2, 1), mode="circular"), pixel_shuffle=lambda x, s: F.pixel_shuffle(x.repeat(1, 2, 1, 1), 2),
     pixel_unshuffle=lambda x, s: F.pixel_unshuffle(x[:, :, :, :4], 2), channel_shuffle=lambda x, s: F.channel_shuffle(x, 2),
     unfold2d=lambda x, s: F.unfold(x, 3, padding=1, stride=2), unfold2d_dil=lambda x, s: F.unfold(x, (2, 3), dilation=(2, 1)),
     fold2d=lambda x, s: F.fold(F.unfold(x, 2), (6, 5), 2), fold2d_s=lambda x, s: F.fold(F.unfold(x, 3, stride=2, padding=1), (6, 5), 3, stride=2, padding=1),
     inst2d=lambda x, s: F.instance_norm(x, weight=T([0.5, 2.0]), bias=T([0.1, 0.2])), bn2d=lambda x, s: F.batch_norm(x, None, None, T([0.5, 2.0]), T([0.1, 0.2]), True),
     dropout0=lambda x, s: F.dropout(x, 0.0), dropout2d_off=lambda x, s: F.dropout2d(x, 0.5, training=False))
each(LINE, conv1d=lambda x, s: F.conv1d(x, s.w1, s.b3, stride=2, padding=1), conv1d_causal=lambda x, s: F.conv1d(F.pad(x, (4, 0)), s.w1, dilation=2),
     conv_t1d=lambda x, s: F.conv_transpose1d(x, s.w1.transpose(0, 1), stride=2), maxpool1d=lambda x, s: F.max_pool1d(x, 3, 2, 1),
     avgpool1d=lambda x, s: F.avg_pool1d(x, 3, 2, 1), lppool1d=lambda x, s: F.lp_pool1d(x, 2, 2), adaptive_avg1d=lambda x, s: F.adaptive_avg_pool1d(x, 5),
     adaptive_max1d=lambda x, s: F.adaptive_max_pool1d(x, 5), up_linear1d=lambda x, s: F.interpolate(x, size=17, mode="linear"),
     up_nearest1d=lambda x, s: F.interpolate(x, scale_factor=2.0), reflect1d=lambda x, s: F.pad(x, (3, 2), mode="reflect"),
     maxpool1d_idx=lambda x, s: F.max_pool1d(x, 2, return_indices=True)[0])
each(VOLUME, conv3d=lambda x, s: F.conv3d(x, s.w3, s.b3, padding=1, stride=2), conv_t3d=lambda x, s: F.conv_transpose3d(x, s.w3.transpose(0, 1), stride=(1, 2, 2)),
     maxpool3d=lambda x, s: F.max_pool3d(x, 2, 1), maxpool3d_p=lambda x, s: F.max_pool3d(x, (2, 3, 2), 2, 1), avgpool3d=lambda x, s: F.avg_pool3d(x, 2, 1),
     avgpool3d_p=lambda x, s: F.avg_pool3d(x, 3, 2, 1, count_include_pad=False), adaptive_avg3d=lambda x, s: F.adaptive_avg_pool3d(x, (2, 3, 2)),
     adaptive_max3d=lambda x, s: F.adaptive_max_pool3d(x, (2, 3, 1)), up_trilinear=lambda x, s: F.interpolate(x, size=(5, 7, 4), mode="trilinear"),
     up_nearest3d=lambda x, s: F.interpolate(x, scale_factor=2), bn3d=lambda x, s: F.batch_norm(x, None, None, training=True),
     reflect3d=lambda x, s: F.pad(x, (1, 1, 1, 1, 1, 1), mode="reflect"), replicate3d=lambda x, s: F.pad(x, (1, 1, 1, 1, 1, 1), mode="replicate"),
     grid3d=lambda x, s: F.grid_sample(x, s.grid3, align_corners=False), permute5=lambda x, s: x.permute(0, 2, 4, 1, 3).flatten(2), sum5=lambda x, s: x.sum((1, 3)))
# Dimensions without elements, and rolls along the batch that are longer than it.
each(ROWS, empty_cat=lambda x, s: torch.cat([x[:, 1:1], x, F.relu(x[:, 4:])], 1), empty_sum=lambda x, s: x[:, 0] + x[:, 2:2].sum(1),
     empty_matmul=lambda x, s: x[:, 2:2].transpose(1, 2) @ x[:, 3:3] + x[:, :1], empty_softmax=lambda x, s: x[:, 0] + x[:, 2:2].softmax(-1).sum(1),
     empty_prod=lambda x, s: x[:, 0] * x[:, 4:].prod(1), empty_norm=lambda x, s: x[:, 0] + F.layer_norm(x[:, 4:], (6,)).sum(1),
     empty_attention=lambda x, s: x + F.scaled_dot_product_attention(x[:, 4:], x, x).sum(1, keepdim=True),
     empty_index=lambda x, s: x[:, 1] + x[:, torch.zeros(0, dtype=torch.long)].sum(1), empty_pad=lambda x, s: F.pad(x[:, :0], (0, 0, 1, 2), value=0.5) + x[:, :3],
     empty_stack=lambda x, s: x[:, 1] + torch.stack([x[:, 0:0], x[:, 4:]], 2).sum((1, 2)), empty_split=lambda x, s: sum(p.sum(1) for p in x.split([0, 3, 1], 1)),
     empty_where=lambda x, s: x[:, 1] + torch.where(x[:, :0] > 0, x[:, :0], 0.5).cumsum(1).sum(1), empty_einsum=lambda x, s: x[:, 0] + torch.einsum("bti,btj->bj", x[:, :0], x[:, 4:]),
     roll_batch_far=lambda x, s: x.roll(-6, 0), roll_batch_rows=lambda x, s: x.roll((3, 1), (0, 1)))
# Samples with each other: sizes that grow with the square of the batch.
each(ROWS, pairs=lambda x, s: ((x.flatten(1) @ x.flatten(1).T * 0.1).softmax(1) @ x.flatten(1)).view_as(x),
     pairs_loss=lambda x, s: x * F.cross_entropy(x.flatten(1) @ s.y.flatten(1).T, torch.arange(x.shape[0])),
     pairs_masked=lambda x, s: x * (x[:, 0] @ x[:, 1].T).masked_fill(torch.eye(x.shape[0], dtype=torch.bool), -torch.inf).softmax(1)[:, :1].unsqueeze(2),
     pairs_flat=lambda x, s: x * (x[:, 0] @ s.y[:, 0].T).flatten()[1:].square().mean(),
     pairs_apart=lambda x, s: (x[:, None] - x[None]).tanh().sum(1), repeat_batch=lambda x, s: x * x[0].repeat(x.shape[0], 1, 1),
     histc=lambda x, s: x * torch.histc(s.ids.float(), 4, 0, 3)[:, None], experts=experts, dropout_inside=lambda x, s: F.dropout(x * 1, 0.0, inplace=True) * 2)
# Products with zeros among their factors, rows of one value, and rows without any.
each(ROWS, prod_zeros=lambda x, s: F.relu(x).prod(2) + F.relu(x + 0.4).prod(1).sum(1, keepdim=True), prod_zeros_all=lambda x, s: x * (F.relu(x[0, :, 0]) + 0.1).prod(),
     std_same=lambda x, s: x.sum(1) + x[:, :1].expand(-1, 4, 6).std(1), lse_none=lambda x, s: x.masked_fill(s.mask[:, :, :1], -torch.inf).logsumexp(2).clamp(min=-50),
     bounds=bounds)
