package wire

// pipeBuf is how many bytes a pipe that polls as writable takes without
// blocking: PIPE_BUF, see pipe(7).
const pipeBuf = 4096
