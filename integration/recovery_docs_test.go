package integration

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestRunbook runs every command of docs/recovery.md in its order, as it stands
// there, with the words in capitals replaced by what they stand for.
func TestRunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/recovery.md")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	s := r.oracle()
	s.State = "shared"
	r.servers["oracle"] = s
	ran := 0
	for _, match := range regexp.MustCompile(`(?m)^ +(interlock .*)$`).FindAllStringSubmatch(string(text), -1) {
		if len(r.pending()) == 0 {
			r.interrupt("oracle", "write", "call-"+string(rune('a'+ran)))
		}
		line := strings.NewReplacer(
			"NAME", "oracle", "RESOURCE", "server:oracle", "ID...", strings.Join(runIDs(r.pending()), " "),
			"DIGEST", decoded[recoveryAnswer](r, "daemon", "recovery", "--json").Set,
		).Replace(match[1])
		r.shell(line + " --dir " + r.home() + " </dev/null")
		if strings.Contains(line, " ack ") {
			r.clear()
		}
		ran++
	}
	if ran < 8 {
		t.Errorf("only %d commands were found", ran)
	}
}
