package status

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestFindingsAreDocumented finds every code in docs/troubleshooting.md, under
// its title and severity, in the order of the registry, and no other code.
func TestFindingsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	rest, doc := string(text), string(text)
	for _, info := range Codes() {
		heading := fmt.Sprintf("\n### `%s`\n\n%s (%s). ", info.Code, strings.ToUpper(info.Title[:1])+info.Title[1:], info.Severity)
		_, after, found := strings.Cut(rest, heading)
		switch {
		case found:
			rest = after
		case strings.Contains(doc, heading):
			t.Errorf("%s is documented in another place than the registry has it", info.Code)
		default:
			t.Errorf("there is no section about %s (%s, %s)", info.Code, info.Title, info.Severity)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^### `([^`]+)`$").FindAllStringSubmatch(doc, -1) {
		if info := Code(m[1]).Info(); info.Title == m[1] {
			t.Errorf("%s is documented and does not exist", m[1])
		}
	}
}
