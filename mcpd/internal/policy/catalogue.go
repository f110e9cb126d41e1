package policy

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/wire"
)

//go:embed catalogue.json
var catalogueJSON []byte

// Catalogue is what is known of well-known servers. Of each it keeps the text, and
// reads it when the server is met for the first time: a daemon meets few of them.
type Catalogue struct {
	entries []*page
	by      map[mark]*page
}

// page is an entry that may not have been read yet.
type page struct {
	name string
	read func() (*Entry, error)
}

// Entry is what is known of one server.
type Entry struct {
	Name string `json:"name"`
	// Source is where what it says can be read, and Checked the package and version
	// whose tools it lists.
	Source  string `json:"source"`
	Checked string `json:"checked"`
	// Why says in a sentence what goes wrong without.
	Why   string  `json:"why"`
	Match Matches `json:"match"`

	Scope     config.Scope     `json:"scope"`
	Instances config.Instances `json:"instances"`
	State     config.State     `json:"state"`
	// PrivateWith are arguments with any of which each process has a state of its
	// own, and there may be many.
	PrivateWith []string             `json:"privateWith"`
	MaxRequests *int                 `json:"maxRequests"`
	LeaseHold   *hold                `json:"leaseHold"`
	Tools       map[string]entryTool `json:"tools"`
}

// Matches are what a command that starts the server has in it, by kind.
type Matches struct {
	NPM      []string `json:"npm"`      // packages
	Python   []string `json:"python"`   // distributions or modules
	Programs []string `json:"programs"` // names of executables
	Images   []string `json:"images"`   // of containers, without a tag
	Builtin  string   `json:"builtin"`  // a built-in server
}

// entryTool is what is known of one tool.
type entryTool struct {
	Class     config.Class `json:"class"`
	Resources templates    `json:"resource"`
	LeaseHold *hold        `json:"leaseHold"`
}

// hold is a duration as the configuration writes it.
type hold time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (h *hold) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	*h = hold(d)
	return err
}

// duration returns the hold as a configuration has it.
func (h *hold) duration() *time.Duration {
	return (*time.Duration)(h)
}

// templates is one template or a list of them.
type templates []config.Template

// UnmarshalJSON implements json.Unmarshaler.
func (t *templates) UnmarshalJSON(b []byte) error {
	var texts []string
	if len(b) > 0 && b[0] == '"' {
		texts = make([]string, 1)
		if err := json.Unmarshal(b, &texts[0]); err != nil {
			return err
		}
	} else if err := json.Unmarshal(b, &texts); err != nil {
		return err
	}
	for _, text := range texts {
		template, err := config.ParseTemplate(text)
		if err != nil {
			return fmt.Errorf("reading resource %q: %w", text, err)
		}
		*t = append(*t, template)
	}
	return nil
}

// Load finds out what the embedded catalogue has. An error is a fault of the program.
func Load() (*Catalogue, error) {
	list, err := wire.Member(catalogueJSON, "servers")
	if err != nil {
		return nil, fmt.Errorf("reading the embedded catalogue: %w", err)
	}
	var texts [][]byte // of the entries, in the program's own data
	wire.Elements(list.Of(catalogueJSON), func(text []byte) bool {
		texts = append(texts, text)
		return true
	})
	c := &Catalogue{by: make(map[mark]*page)}
	for _, text := range texts {
		var head struct {
			Name  string
			Match Matches
		}
		if err := json.Unmarshal(text, &head); err != nil {
			return nil, fmt.Errorf("reading the embedded catalogue: %w", err)
		}
		p := &page{head.Name, sync.OnceValues(func() (*Entry, error) { return readEntry(text) })}
		c.entries = append(c.entries, p)
		for _, m := range head.Match.marks() {
			if other := c.by[m]; other != nil && other != p {
				return nil, fmt.Errorf("reading the embedded catalogue: %q and %q are both found by %v", p.name, other.name, m)
			}
			c.by[m] = p
		}
	}
	return c, nil
}

func readEntry(text []byte) (*Entry, error) {
	e := new(Entry)
	if err := json.Unmarshal(text, e); err != nil {
		return nil, fmt.Errorf("reading an entry of the embedded catalogue: %w", err)
	}
	return e, nil
}

// Entries returns all entries, in the order of the file.
func (c *Catalogue) Entries() ([]*Entry, error) {
	all := make([]*Entry, len(c.entries))
	for i, p := range c.entries {
		e, err := p.read()
		if err != nil {
			return nil, err
		}
		all[i] = e
	}
	return all, nil
}
