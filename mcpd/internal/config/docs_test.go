package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documentation returns the part of docs/configuration.md under the heading.
func documentation(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/configuration.md has no section %q", heading)
	}
	part, _, _ = strings.Cut(part, "\n## ")
	return part
}

// documented returns the names that the rows of a section's table begin with.
func documented(section string) []string {
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		names = append(names, m[1])
	}
	return names
}

// sameNames checks that documentation and code have the same names.
func sameNames(t *testing.T, documented, known []string) {
	t.Helper()
	for _, name := range known {
		if !slices.Contains(documented, name) {
			t.Errorf("%s is not documented", name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(known, name) {
			t.Errorf("%s is documented and does not exist", name)
		}
	}
}

func TestLimitsAreDocumented(t *testing.T) {
	section := documentation(t, "Limits")
	limits := Defaults()
	var names []string
	for _, s := range limits.settings() {
		names = append(names, s.name)
		row := fmt.Sprintf("| `%s` | %s | %s to %s |", s.name, s.show(s.value()), s.show(s.min), s.show(s.max))
		if !strings.Contains(section, "\n"+row) {
			t.Errorf("there is no row that begins with %s", row)
		}
	}
	sameNames(t, documented(section), names)
}

func TestServerMembersAreDocumented(t *testing.T) {
	sameNames(t, documented(documentation(t, "Servers")), ourFields())
}

func TestTopMembersAreDocumented(t *testing.T) {
	sameNames(t, documented(documentation(t, "The file")), append(topKeys(), serversKey))
}
