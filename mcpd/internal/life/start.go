package life

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"interlock/mcpd/internal/endpoint/private"
)

// StartSpec says what to start.
type StartSpec struct {
	Argv []string // the path of the program and its arguments; it must call Ready first of all
	Env  []string // its environment
	Log  string   // file to which its stdout and stderr are appended; where that is impossible they go nowhere
}

// A StartError says why a daemon did not come up.
type StartError struct {
	Code    string // what Notifier.Fail was given; empty if the daemon said nothing
	Message string // the daemon's own words, or ours if it said nothing
	Log     string // where more may stand
	Err     error  // of the system, if there is one
}

func (e *StartError) Error() string {
	s := "starting the daemon: " + e.Message
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Log != "" {
		s += " (its log is " + private.Quote(e.Log) + ")"
	}
	return s
}

// Unwrap returns the system's error, if there is one.
func (e *StartError) Unwrap() error { return e.Err }

// startVariable tells a process started by StartDetached which of the two
// stages of the start it is.
const (
	startVariable = "INTERLOCK_START"
	stageDetach   = "detach" // start the program once more and end
	stageServe    = "serve"  // be the daemon and report
)

// reportDescriptor is the end of the pipe in both stages, the first after
// stdin, stdout and stderr.
const reportDescriptor = 3

// report is what the daemon says over the pipe.
type report struct {
	PID   int    `json:"pid"`
	Code  string `json:"code,omitempty"`
	Error string `json:"error,omitempty"`
}

// maxReport bounds what StartDetached reads of a report, in bytes.
const maxReport = 64 << 10

// StartDetached starts a daemon that is nobody's child: in a session of its
// own, working in /, without standard input, and free of every descriptor that
// this process inherited. It returns the daemon's pid once the daemon says that
// it is ready. All other ends are a [*StartError]; its Err is that of ctx if ctx
// ended first, and then the daemon may still come up.
func StartDetached(ctx context.Context, spec StartSpec) (pid int, err error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return 0, &StartError{Message: "making a pipe", Err: err}
	}
	defer reader.Close()
	cmd, output, err := firstStage(ctx, spec, writer)
	if err == nil {
		err = cmd.Start()
		output.Close()
	}
	writer.Close() // the daemon's copy is to be the last, so that its end is seen
	if err != nil {
		return 0, &StartError{Message: "running " + private.Quote(spec.Argv[0]), Err: err}
	}
	said, readErr := readReport(ctx, reader)
	// The first stage ends by itself; ctx kills it if it does not. How it
	// ended says nothing that the report does not.
	_ = cmd.Wait()
	switch {
	case readErr == nil && said.Error != "":
		return 0, &StartError{Code: said.Code, Message: said.Error, Log: spec.Log}
	case readErr == nil:
		return said.PID, nil
	case ctx.Err() != nil:
		return 0, &StartError{Message: "it did not become ready in time", Log: spec.Log, Err: context.Cause(ctx)}
	case errors.Is(readErr, io.EOF):
		return 0, &StartError{Message: "it ended without a word", Log: spec.Log}
	}
	return 0, &StartError{Message: "reading its report", Log: spec.Log, Err: readErr}
}

func firstStage(ctx context.Context, spec StartSpec, pipe *os.File) (*exec.Cmd, *os.File, error) {
	output, err := private.Open(spec.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		if output, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
			return nil, nil, err
		}
	}
	cmd := exec.CommandContext(ctx, spec.Argv[0], spec.Argv[1:]...)
	cmd.Env = append(withoutVariable(spec.Env), startVariable+"="+stageDetach)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{pipe}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, output, nil
}

func withoutVariable(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		return strings.HasPrefix(entry, startVariable+"=")
	})
}

func readReport(ctx context.Context, pipe *os.File) (report, error) {
	stop := context.AfterFunc(ctx, func() { _ = pipe.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var said report
	err := json.NewDecoder(io.LimitReader(pipe, maxReport)).Decode(&said)
	return said, err
}

// ErrDetached is what [Ready] returns in the process whose only part was to
// start the daemon. It should end at once, successfully.
var ErrDetached = errors.New("the daemon goes on in another process")

// A Notifier tells the process that started the daemon how the start went. Of
// several calls the first counts. It is not safe for concurrent use.
type Notifier struct{ pipe *os.File } // nil if nobody waits, or was told

// Ready must be the first call of a daemon's main, before any goroutine or file
// of its own: it gives the process umask 077, and if [StartDetached] started it,
// completes the detachment. Then its error may be [ErrDetached], which is the
// end of this process's part. The Notifier serves as well where nobody waits.
// env looks up environment variables, as [os.Getenv] does; the variable by which
// the start is passed on is removed from the environment.
func Ready(env func(string) string) (*Notifier, error) {
	syscall.Umask(0o077)
	stage := env(startVariable)
	if stage == "" {
		return &Notifier{}, nil
	}
	if err := os.Unsetenv(startVariable); err != nil {
		return nil, fmt.Errorf("taking over the start: %w", err)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(reportDescriptor, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return nil, fmt.Errorf("taking over the start: %s is set, but descriptor %d is no pipe; unset it", startVariable, reportDescriptor)
	}
	syscall.CloseOnExec(reportDescriptor)
	notifier := &Notifier{pipe: os.NewFile(reportDescriptor, "report")}
	if stage == stageServe {
		return notifier, nil
	}
	if err := secondStage(notifier.pipe); err != nil {
		notifier.Fail("", err)
		return nil, fmt.Errorf("detaching the daemon: %w", err)
	}
	return nil, ErrDetached
}

// secondStage starts this program again, as nobody's child once this process
// has ended: one that ends a bridge together with its children does not find it.
func secondStage(pipe *os.File) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := closeInheritedOnExec(); err != nil {
		return err
	}
	daemon, err := os.StartProcess(program, os.Args, &os.ProcAttr{
		Dir:   "/",
		Env:   append(withoutVariable(os.Environ()), startVariable+"="+stageServe),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, pipe},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	return daemon.Release()
}

// Awaited reports whether another process started this one and has not heard yet
// how that went.
func (n *Notifier) Awaited() bool { return n.pipe != nil }

// OK says that the daemon serves.
func (n *Notifier) OK() { n.tell(report{PID: os.Getpid()}) }

// Fail says why it does not; code is for programs and may be empty.
func (n *Notifier) Fail(code string, err error) {
	n.tell(report{PID: os.Getpid(), Code: code, Error: err.Error()})
}

func (n *Notifier) tell(said report) {
	if n.pipe == nil {
		return
	}
	defer func() { n.pipe.Close(); n.pipe = nil }()
	if len(said.Error) > maxReport/8 { // JSON may need six bytes for one
		said.Error = said.Error[:maxReport/8]
	}
	line, err := json.Marshal(said)
	if err != nil {
		return
	}
	_, _ = n.pipe.Write(append(line, '\n')) // whoever waited may be gone
}
