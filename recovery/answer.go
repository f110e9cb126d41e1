package recovery

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// StatusClear is the status of an answer when nothing is pending.
const StatusClear = "clear"

const statusAcknowledged = "acknowledged"

// Ack is the answer to an acknowledgement, as `daemon recovery ack --json` prints it.
type Ack struct {
	Status               string   `json:"status"` // "acknowledged" or "clear"
	Path                 string   `json:"path"`
	Runs                 int      `json:"runs,omitempty"`
	ReconciledRequestIDs []string `json:"reconciledRequestIds,omitempty"`
	Acknowledged         bool     `json:"acknowledged"`
}

// WriteText says the same to a person.
func (a Ack) WriteText(w io.Writer) error {
	text := "Nothing is pending.\n"
	if a.Acknowledged {
		text = fmt.Sprintf("Acknowledged %s.\n", count(a.Runs, "run"))
	}
	_, err := io.WriteString(w, text)
	return err
}

// State is what is pending, as `daemon recovery --json` prints it.
type State struct {
	Status   string    `json:"status"` // StateReconcile or StatusClear
	Path     string    `json:"path"`
	Recovery *Document `json:"recovery,omitempty"`
	// Set is the digest by which exactly these runs can be acknowledged.
	Set      string    `json:"set,omitempty"`
	Problems []Problem `json:"problems,omitempty"`

	part Selection // what Narrow has left
}

// stateOf builds the answer for a set of runs.
func stateOf(path string, at time.Time, epoch uint64, runs []Record, problems []Problem) State {
	if len(runs) == 0 {
		return State{Status: StatusClear, Path: path, Problems: problems}
	}
	return State{
		Status: StateReconcile, Path: path, Set: SetDigest(runs), Problems: problems,
		Recovery: &Document{SchemaVersion: schemaVersion, State: StateReconcile, RecoveredAt: at.UTC(), Epoch: epoch, Runs: runs},
	}
}

// Pending returns the runs of the state, oldest first.
func (s State) Pending() []Record {
	if s.Recovery == nil {
		return nil
	}
	return s.Recovery.Runs
}

// State returns what is pending now.
func (j *Journal) State() State {
	return stateOf(j.o.Recovery, j.recoveredAt, j.number, j.Pending(), j.Problems())
}

// Inspect reads what is pending while no daemon runs; with one running, its active
// runs would be among it. It changes nothing and needs no lock. Where there is no
// directory yet, nothing is pending.
func Inspect(o Options) (State, error) {
	o = o.withDefaults()
	l, err := load(o)
	if errors.Is(err, fs.ErrNotExist) {
		return State{Status: StatusClear, Path: o.Recovery}, nil
	}
	if err != nil {
		return State{}, err
	}
	found, _ := l.pending(o.BootID)
	runs := make([]Record, 0, len(found))
	for _, r := range found {
		runs = append(runs, r)
	}
	sortRuns(runs)
	at := l.recoveredAt
	if at.IsZero() {
		at = o.Now()
	}
	return stateOf(o.Recovery, at, l.number, runs, l.problems), nil
}

// Narrow leaves only the runs that a selection's Servers and Resource leave.
func (s State) Narrow(sel Selection) State {
	if s.Recovery == nil {
		return s
	}
	part := stateOf(s.Path, s.Recovery.RecoveredAt, s.Recovery.Epoch, sel.narrow(s.Recovery.Runs), s.Problems)
	part.part = sel
	return part
}

// maxPasted is how many ids the printed command spells out; beyond it the digest
// stands for them.
const maxPasted = 8

// WriteText says the same to a person, with the command to paste. Text that clients
// or servers chose is made harmless for a terminal. Command is as in [Options].
func (s State) WriteText(w io.Writer, command string) error {
	var b strings.Builder
	if s.Recovery == nil {
		b.WriteString("Nothing is pending.\n")
	} else {
		writeRuns(&b, s.Recovery.Runs)
		fmt.Fprintf(&b, "\nNobody knows what %s did. Look, then acknowledge exactly %s:\n\n  %s daemon recovery ack %s\n",
			these(s.Recovery.Runs), these(s.Recovery.Runs), command, s.pasted())
	}
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "\n%s: %s\n  %s\n", p.Code, plain(p.Detail), plain(p.Remedy))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRuns writes a table of runs.
func writeRuns(w io.Writer, runs []Record) {
	fmt.Fprintf(w, "%s to reconcile:\n\n", count(len(runs), "run"))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RUN\tSTARTED\tCLIENT\tSERVER\tTOOL\tRESOURCE\tWHY")
	for i := range runs {
		r := &runs[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			plain(r.RequestID), r.StartedAt.UTC().Format(time.RFC3339), plain(r.Client), plain(r.Server),
			plain(r.Tool), plain(strings.Join(r.AllResources(), " ")), plain(r.Reason))
	}
	// The writers below it are strings.Builders, which do not fail.
	_ = table.Flush()
}

// pasted names the set for a command line: by its ids if they are few and ordinary
// words, as ours are, and with what Narrow was given.
func (s State) pasted() string {
	var words []string
	for _, server := range s.part.Servers {
		words = append(words, "--server "+quoted(server))
	}
	if s.part.Resource != "" {
		words = append(words, "--resource "+quoted(s.part.Resource))
	}
	ids := idsOf(s.Recovery.Runs)
	if len(ids) > maxPasted || slices.ContainsFunc(ids, odd) {
		ids = []string{"--set " + s.Set}
	}
	return strings.Join(append(words, ids...), " ")
}

// quoted is text as one word of a POSIX shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// odd says that a shell or a terminal might not take an id as it is.
func odd(id string) bool {
	return id == "" || strings.Trim(id, "-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || id[0] == '-'
}

// these refers to runs by their number.
func these(runs []Record) string {
	if len(runs) == 1 {
		return "this run"
	}
	return "these runs"
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// plain is text without anything that a terminal would act on or a table break at.
func plain(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}
