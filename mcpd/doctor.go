package mcpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/endpoint/private"
	"interlock/mcpd/internal/life"
	"interlock/recovery"
	"interlock/status"
)

const (
	// doctorLimit bounds all that doctor does.
	doctorLimit = 30 * time.Second
	// answerLimit is how long a daemon that is not frozen may take to answer.
	answerLimit = 3 * time.Second
	// settleLimit is how long a daemon that has the lock but no socket yet, or no
	// more, is waited for.
	settleLimit = 2 * time.Second
)

// Doctor looks at the daemon of the place and at all that it needs, whether it
// runs or not. It changes nothing; a daemon that is asked brings its status file up
// to date.
func Doctor(ctx context.Context, place Place) status.DoctorAnswer {
	paths, err := endpoint.Locate(os.Getenv, endpoint.Options{Dir: place.Dir, Socket: place.Socket, Status: place.Status})
	if err != nil {
		return unlocated(err)
	}
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	p := examine(ctx, place, paths)
	report := status.RunChecks(ctx, p.checks()...)
	return p.answer(report)
}

// unlocated is the answer where it is not even clear which daemon is meant.
func unlocated(err error) status.DoctorAnswer {
	code, remedy := status.DirectoryUnknown, "Set HOME, or name a directory with --dir."
	var unsafe *endpoint.UnsafeError
	if errors.As(err, &unsafe) {
		code, remedy = status.SocketPathTooLong, sentence(unsafe.Remedy)
	}
	a := status.NewDoctorAnswer(nil, []status.Finding{code.Finding(err.Error(), remedy, time.Now())})
	a.Detail = err.Error()
	return a
}

// patient is what there is to know of a daemon before the checks judge it.
type patient struct {
	place Place
	paths endpoint.Paths
	now   time.Time

	// A daemon that is asked writes its status file anew, so the files come first.
	unsafe  []*endpoint.UnsafeError // files that are not private
	file    status.Snapshot         // what the status file says
	fileErr error
	live    *status.Snapshot // what the daemon says, nil if it does not
	liveErr error
	held    bool // somebody holds the lock
	heldErr error
	process error // of pinning the process on record; nil if it is alive

	state    recovery.State // of the record, as far as stateErr is nil
	stateErr error
	config   *config.Config // nil if a named file is missing
	problem  *config.Problem
}

// examine asks the daemon and reads its files.
func examine(ctx context.Context, place Place, paths endpoint.Paths) *patient {
	p := &patient{place: place, paths: paths, now: time.Now()}
	p.unsafe = unsafeFiles(paths)
	p.file, p.fileErr = status.Read(paths.Status)
	p.ask(ctx)
	p.process = p.pin()
	p.readRecord(ctx)
	p.readConfig()
	return p
}

// ask asks the daemon for its status. One that starts or ends just now is given
// the time to come or go.
func (p *patient) ask(ctx context.Context) {
	for deadline := p.now.Add(settleLimit); ; {
		p.live, p.liveErr = askStatus(ctx, p.paths)
		p.held, p.heldErr = endpoint.Held(p.paths)
		settled := p.live != nil || !p.held || !noAnswer(p.liveErr)
		if settled || time.Now().After(deadline) || pause(ctx, 50*time.Millisecond) != nil {
			return
		}
	}
}

func askStatus(ctx context.Context, paths endpoint.Paths) (*status.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	s, err := askOnce[status.Snapshot](ctx, paths, methodStatus, nil)
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// record is the latest of what is known of the daemon: what it says, or what its
// file said; nil if there is neither.
func (p *patient) record() *status.Snapshot {
	switch {
	case p.live != nil:
		return p.live
	case p.fileErr == nil:
		return &p.file
	default:
		return nil
	}
}

// running reports whether there is a daemon, though it may not answer.
func (p *patient) running() bool { return p.live != nil || p.held }

// pin makes sure that the process on record is alive and no other.
func (p *patient) pin() error {
	s := p.record()
	if s == nil {
		return errors.New("no process is on record")
	}
	process, err := life.Pin(identityOf(s))
	if err != nil {
		return err
	}
	return process.Close()
}

// identityOf is the identity of a daemon as its status has it.
func identityOf(s *status.Snapshot) life.Identity {
	id := s.Identity
	return life.Identity{
		PID: s.PID, StartTicks: id.StartTicks, BootID: id.BootID, PIDNamespace: id.PIDNamespace,
		Instance: id.Instance, UID: uint32(id.UID), Build: id.Build,
	}
}

// readRecord finds out what is pending. Under a daemon that does not answer what
// is in flight cannot be told from it, and only what is wrong is kept.
func (p *patient) readRecord(ctx context.Context) {
	if p.live != nil {
		ctx, cancel := context.WithTimeout(ctx, answerLimit)
		defer cancel()
		p.state, p.stateErr = askOnce[recovery.State](ctx, p.paths, methodRecovery, nil)
		return
	}
	identity, err := life.Self(Version())
	if err != nil {
		p.stateErr = err
		return
	}
	p.state, p.stateErr = recovery.Inspect(recoveryOptions(p.place, p.paths, nil, identity))
	if p.held {
		p.state.Recovery = nil
	}
}

// readConfig reads the configuration that the daemon uses, or would use.
func (p *patient) readConfig() {
	path := p.place.configPath()
	if p.live != nil && p.place.Config == "" && p.live.ConfigPath != "" {
		path = p.live.ConfigPath
	}
	cfg, err := config.Load(path, p.place.Config != "")
	if err != nil {
		errors.As(err, &p.problem)
		return
	}
	p.config = cfg
}

// answer is what doctor says in the end.
func (p *patient) answer(r status.Report) status.DoctorAnswer {
	daemon := p.live
	if daemon == nil && p.held && p.fileErr == nil {
		daemon = &p.file
	}
	a := status.NewDoctorAnswer(daemon, r.Findings)
	a.Checks = r.Checks
	a.PidAlive = p.process == nil
	info, err := os.Lstat(p.paths.Socket)
	a.SocketExists = err == nil && info.Mode().Type() == fs.ModeSocket
	if p.state.Recovery != nil {
		a.Recovery, _ = json.Marshal(p.state.Recovery)
	}
	if daemon == nil {
		a.Detail = p.absence()
	}
	return a
}

// absence says in a sentence why there is no daemon.
func (p *patient) absence() string {
	switch {
	case p.held:
		return "a daemon holds the lock, and neither it nor its status file says anything"
	case p.fileErr == nil && errors.Is(p.process, life.ErrGone):
		return fmt.Sprintf("the daemon (pid %d) ended without stopping", p.file.PID)
	case p.fileErr == nil:
		return fmt.Sprintf("the daemon that was recorded as pid %d is gone", p.file.PID)
	default:
		return "no daemon is running"
	}
}

// finding is a finding of now.
func (p *patient) finding(code status.Code, remedy, format string, args ...any) status.Finding {
	return code.Finding(fmt.Sprintf(format, args...), remedy, p.now)
}

// daemon is a command of this program for the place, to be pasted.
func (p *patient) daemon(words string) string { return p.place.Command() + " daemon " + words }

// aside is a command that moves a file away without losing it.
func aside(path string) string {
	return "mv " + private.Quote(path) + " " + private.Quote(path+".aside")
}

// sentence makes a remedy that is no command a sentence, and leaves "run: " off
// one that is.
func sentence(remedy string) string {
	if command, ok := strings.CutPrefix(remedy, "run: "); ok {
		return command
	}
	if remedy == "" {
		return ""
	}
	return strings.ToUpper(remedy[:1]) + remedy[1:] + "."
}
