package status

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// Severity is how much a finding matters.
type Severity string

// The severities. A failure keeps something from working, a warning will or
// may, an info explains.
const (
	Info    Severity = "info"
	Warning Severity = "warning"
	Failure Severity = "failure"
)

// rank orders severities, the gravest first.
func (s Severity) rank() int {
	switch s {
	case Failure:
		return 0
	case Warning:
		return 1
	}
	return 2
}

// Finding is one thing that status or doctor has to say.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Title says what kind of thing it is, Detail what exactly, Remedy what to
	// do: a command to run where there is one.
	Title  string    `json:"title"`
	Detail string    `json:"detail"`
	Remedy string    `json:"remedy"`
	Since  time.Time `json:"since"`
}

// MarshalJSON encodes the finding with its time in UTC and its text clipped.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding // without this method
	return json.Marshal(plain(f.canonical()))
}

// canonical returns f as it is encoded.
func (f Finding) canonical() Finding {
	f.Title, f.Detail, f.Remedy = clip(f.Title, maxName), clip(f.Detail, maxDetail), clip(f.Remedy, maxDetail)
	f.Since = f.Since.UTC()
	return f
}

// SortFindings orders findings as they are shown: the gravest first, then by
// code, then the oldest first.
func SortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.Severity.rank(), b.Severity.rank()),
			cmp.Compare(a.Code, b.Code),
			a.Since.Compare(b.Since),
		)
	})
}

// failing reports whether one of findings is a failure.
func failing(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Failure })
}
