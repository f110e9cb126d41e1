package endpoint

import "os/exec"

func linuxRoles() map[string]func(args ...string) error { return nil }

// limitDescriptors has the process start with little room.
func limitDescriptors(cmd *exec.Cmd) {
	cmd.Args = append([]string{"sh", "-c", `ulimit -n 48; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}
