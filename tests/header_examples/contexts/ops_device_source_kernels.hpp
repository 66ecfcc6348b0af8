extern ops::Device& device;
extern ops::Stream& stream;
extern float *x, *y;
extern long count;
