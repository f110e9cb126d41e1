package private

import "testing"

func TestMapsAll(t *testing.T) {
	for uidMap, want := range map[string]bool{
		"         0          0 4294967295\n":            true,
		"0 0 1000\n1000 1000 1\n1001 1001 4294966294\n": true,
		"":                                   false,
		"         0       1000          1\n": false,
		"0 100000 65536\n":                   false,
		"0 1000 1\n1 100000 65536\n":         false,
		"0 0 nonsense\n":                     false,
	} {
		if got := mapsAll(uidMap); got != want {
			t.Errorf("%q: %v", uidMap, got)
		}
	}
}
