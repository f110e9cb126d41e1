package proc

// Marked is a running process of this user that carries an instance marker.
type Marked struct {
	PID        int
	StartTicks uint64 // when it started, in clock ticks since boot
	Marker     string
	Comm       string // its name, as the kernel has it
	Parent     int    // pid of its parent
	Helper     bool   // whether it is a spawn helper
}
