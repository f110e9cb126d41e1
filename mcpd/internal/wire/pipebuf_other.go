//go:build !linux

package wire

// pipeBuf is how many bytes a pipe that polls as writable takes without
// blocking: the least PIPE_BUF that POSIX allows, and macOS has.
const pipeBuf = 512
