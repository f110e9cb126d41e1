package doctor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumentedJSON compares what the commands print with the tables in
// docs/cli-json.md: every member is described there.
func TestDocumentedJSON(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli-json.md"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWard(t)
	w.pending(2)
	w.running()
	state, ids := w.recovery("")
	if state.Status != "reconciliation_required" {
		t.Fatalf("recovery: %+v", state)
	}
	sections := strings.Split(string(doc), "\n## ")[1:]
	if len(sections) < 6 {
		t.Fatalf("%d commands are documented", len(sections))
	}
	for _, section := range sections {
		head, text, _ := strings.Cut(section, "\n")
		line := strings.Trim(head, "`")
		if strings.Contains(line, " ack ") {
			line += " " + strings.Join(ids, " ")
		}
		var documented []string
		for _, row := range regexp.MustCompile("(?m)^\\| `.*?\\|").FindAllString(text, -1) {
			for _, name := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(row, -1) {
				documented = append(documented, name[1])
			}
		}
		out, errs, code := w.run(line)
		var printed map[string]json.RawMessage
		if err := json.Unmarshal([]byte(out), &printed); err != nil {
			t.Errorf("%s: exit code %d: %v\n%s", line, code, err, errs)
			continue
		}
		for name := range printed {
			if !slices.Contains(documented, name) {
				t.Errorf("%s prints %q, which docs/cli-json.md does not describe", line, name)
			}
		}
		if len(documented) < len(printed) || len(documented) == 0 {
			t.Errorf("%s: %v are documented", line, documented)
		}
	}
}
