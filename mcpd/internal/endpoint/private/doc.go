// Package private opens files and makes directories that belong to one user
// and to nobody else.
//
// It guarantees that what it returns is what the caller's own user put there:
// never followed through a symbolic link in the last component, never a FIFO
// or device that could block or act on being opened, never a file that has a
// second name elsewhere, never something that another user owns or may write.
// What it refuses it leaves exactly as it was; it changes no mode of anything
// that it did not make.
package private
