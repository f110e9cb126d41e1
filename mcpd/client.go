package mcpd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/endpoint/private"
	"interlock/status"
)

// Place says which daemon is meant: where its directory is and which
// configuration it uses. The zero value is the user's own. Values come from the
// command line.
type Place struct {
	Dir    string // the daemon's directory
	Socket string // its socket; without Dir, the directory is the socket's
	Status string // its status file
	Config string // the configuration file
}

// paths finds the files of the place, and checks that a status file found there
// speaks of the same daemon.
func (p Place) paths() (endpoint.Paths, error) {
	paths, err := endpoint.Locate(os.Getenv, endpoint.Options{Dir: p.Dir, Socket: p.Socket, Status: p.Status})
	if err != nil {
		return paths, err
	}
	if p.Status == "" {
		return paths, nil
	}
	s, err := status.Read(paths.Status)
	if err == nil && s.Socket != "" && s.Socket != paths.Socket {
		return paths, fmt.Errorf("status file %s speaks of the daemon at %s, not of %s; name the other's directory, or another status file", paths.Status, s.Socket, paths.Socket)
	}
	return paths, nil
}

// Command is how a user names this program with the place's options, for
// commands to be pasted, in whatever directory that happens.
func (p Place) Command() string {
	words := []string{"interlock"}
	usual, unknown := endpoint.Locate(os.Getenv, endpoint.Options{})
	for _, o := range []struct{ flag, value string }{{"--dir", p.Dir}, {"--socket", p.Socket}, {"--status", p.Status}, {"--config", p.Config}} {
		if o.value == "" {
			continue
		}
		path, err := filepath.Abs(o.value)
		if err != nil {
			path = o.value // there is no working directory
		}
		if o.flag == "--dir" && unknown == nil && path == usual.Dir {
			continue
		}
		words = append(words, o.flag, private.Quote(path))
	}
	return strings.Join(words, " ")
}

func (p Place) configPath() string { return config.Path(os.Getenv, p.Config) }

// RemoteError is a daemon's refusal of a control request.
type RemoteError struct {
	Code    int
	Message string
}

func (e *RemoteError) Error() string { return e.Message }

// remote is a control connection.
type remote struct {
	nc   *net.UnixConn
	in   *bufio.Reader
	last int
}

// dialControl connects to the daemon of the paths.
func dialControl(ctx context.Context, p endpoint.Paths) (*remote, error) {
	nc, err := endpoint.Dial(ctx, p)
	if err != nil {
		return nil, err
	}
	return &remote{nc: nc, in: bufio.NewReader(nc)}, nil
}

func (r *remote) close() { r.nc.Close() }

// call sends one control request and decodes its result. The context bounds
// both.
func (r *remote) call(ctx context.Context, method string, params, result any) error {
	if deadline, ok := ctx.Deadline(); ok {
		r.nc.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { r.nc.Close() })
	defer stop()
	r.last++
	request := struct {
		JSONRPC string `json:"jsonrpc"`
		ID      int    `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{"2.0", r.last, method, params}
	b, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("writing %s: %w", method, err)
	}
	if _, err := r.nc.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("asking the daemon: %w", err)
	}
	line, err := r.in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("awaiting the daemon's answer to %s: %w", method, err)
	}
	return decodeAnswer(line, strconv.Itoa(r.last), result)
}

// decodeAnswer reads the answer to the request with the id.
func decodeAnswer(line []byte, id string, result any) error {
	var answer struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  *struct {
			RemoteError
			Data struct{ Set *SetError }
		}
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return fmt.Errorf("reading the daemon's answer: %w", err)
	}
	if e := answer.Error; e != nil {
		if e.Data.Set != nil {
			return e.Data.Set
		}
		return &e.RemoteError
	}
	if string(answer.ID) != id {
		return fmt.Errorf("reading the daemon's answer: it is to request %s, not %s", answer.ID, id)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}

// ErrNotRunning is returned for what needs a daemon where none runs.
var ErrNotRunning = errors.New("no daemon is running")

// A CrashError says that no daemon runs, and that the last one ended without
// stopping. It is an ErrNotRunning.
type CrashError struct {
	PID     int       // of the daemon
	Written time.Time // when it wrote its status last
	Command string    // shows what it has left undone
}

func (e *CrashError) Error() string {
	return fmt.Sprintf("%v: the last one (pid %d) ended without stopping, after %s; calls that it has left undone are shown by: %s",
		ErrNotRunning, e.PID, e.Written.UTC().Format(time.RFC3339), e.Command)
}

// Unwrap returns ErrNotRunning.
func (e *CrashError) Unwrap() error { return ErrNotRunning }

// Status returns the state of the daemon of the place: what it says itself or,
// if it cannot be asked, what its status file last said. Where no daemon runs
// the error is ErrNotRunning, and a *[CrashError] where one has crashed; the
// snapshot is then that one's, with state stopped.
func Status(ctx context.Context, place Place) (status.Snapshot, error) {
	p, err := place.paths()
	if err != nil {
		return status.Snapshot{}, err
	}
	began := time.Now()
	s, err := askOnce[status.Snapshot](ctx, p, methodStatus, nil)
	switch {
	case errors.Is(err, endpoint.ErrBusy), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return status.Snapshot{}, unresponsive(place, p, time.Since(began).Round(100*time.Millisecond))
	case !noAnswer(err):
		return s, err
	}
	s, readErr := status.Read(p.Status)
	if errors.Is(readErr, fs.ErrNotExist) {
		return s, ErrNotRunning
	}
	held, heldErr := endpoint.Held(p)
	switch {
	case heldErr == nil && held && readErr == nil:
		return s, fmt.Errorf("daemon (pid %d) runs but does not answer: %w", s.PID, err)
	case heldErr == nil && held:
		return status.Snapshot{}, fmt.Errorf("a daemon runs but does not answer: %w", err)
	case readErr != nil:
		return status.Snapshot{}, fmt.Errorf("%w; %w", ErrNotRunning, readErr)
	}
	s.State = status.StateStopped
	crash := &CrashError{PID: s.PID, Command: place.Command() + " daemon recovery"}
	if info, err := os.Stat(p.Status); err == nil {
		crash.Written = info.ModTime()
	}
	return s, crash
}
