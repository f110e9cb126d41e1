package proc

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// eachSpawner runs f with every spawner of this system.
func eachSpawner(t *testing.T, f func(t *testing.T, sp Spawner)) {
	t.Run("direct", func(t *testing.T) { f(t, Direct{Marker: newMarker(t)}) })
}

// cleanUp has no means to find processes by their marker here.
func cleanUp(testing.TB, string) {}

func isDead(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.HasPrefix(string(out), "Z")
}

func runRole(string, []string) int { return 2 }
