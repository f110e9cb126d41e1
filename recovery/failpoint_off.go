//go:build !failpoint

package recovery

// fp marks a point at which a build with the tag failpoint can be killed.
func fp(op, name string) {}
