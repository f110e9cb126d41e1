package mcpd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/endpoint/private"
	"interlock/mcpd/internal/life"
	"interlock/mcpd/internal/proc"
	"interlock/status"
)

// check is a status.Check that looks at a patient.
type check struct {
	name string
	run  func(context.Context) []status.Finding
}

// Name implements status.Check.
func (c check) Name() string { return c.name }

// Run implements status.Check.
func (c check) Run(ctx context.Context) []status.Finding { return c.run(ctx) }

// checks are what doctor looks at, in this order.
func (p *patient) checks() []status.Check {
	return []status.Check{
		check{"directory", p.checkDirectory},
		check{"files", p.checkFiles},
		check{"lock", p.checkLock},
		check{"socket", p.checkSocket},
		check{"answer", p.checkAnswer},
		check{"presence", p.checkPresence},
		check{"identity", p.checkIdentity},
		check{"build", p.checkBuild},
		check{"status-file", p.checkStatusFile},
		check{"record", p.checkRecord},
		check{"log", p.checkLog},
		check{"temporary-files", p.checkTemporaryFiles},
		check{"disk", p.checkDisk},
		check{"descriptors", p.checkDescriptors},
		check{"sessions", p.checkSessions},
		check{"clock", p.checkClock},
		check{"processes", p.checkProcesses},
		check{"zombies", p.checkZombies},
		check{"configuration", p.checkConfiguration},
		check{"commands", p.checkCommands},
		check{"own-findings", p.checkOwnFindings},
	}
}

func (p *patient) checkDirectory(context.Context) []status.Finding {
	err := endpoint.Verify(p.paths)
	var unsafe *endpoint.UnsafeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unsafe):
		return []status.Finding{p.finding(status.DirectoryUnsafe, sentence(unsafe.Remedy), "%s %s", unsafe.Path, unsafe.Detail)}
	default:
		return []status.Finding{p.finding(status.DirectoryUnsafe, "", "%v", err)}
	}
}

// unsafeFiles holds every file of the daemon's to what private files are.
func unsafeFiles(paths endpoint.Paths) (all []*private.UnsafeError) {
	for _, path := range []string{
		paths.Lock, paths.Status, paths.Log, paths.Journal, paths.Recovery,
		filepath.Join(paths.Dir, "daemon.key"), filepath.Join(paths.Dir, "daemon.history"),
	} {
		f, err := private.Open(path, os.O_RDONLY)
		if err == nil {
			f.Close()
			continue
		}
		// Others are missing, or below what the directory's check has found.
		var unsafe *private.UnsafeError
		if errors.As(err, &unsafe) {
			all = append(all, unsafe)
		}
	}
	return all
}

func (p *patient) checkFiles(context.Context) []status.Finding {
	var all []status.Finding
	for _, unsafe := range p.unsafe {
		remedy := sentence(unsafe.Remedy)
		if unsafe.Code != private.CodeOpen && unsafe.Code != private.CodeNotOwned {
			remedy = aside(unsafe.Path)
		}
		all = append(all, p.finding(status.FileUnsafe, remedy, "%s %s", unsafe.Path, unsafe.Detail))
	}
	return all
}

// checkLock makes sure that the daemon has the lock that others would take.
func (p *patient) checkLock(context.Context) []status.Finding {
	var unsafe *private.UnsafeError
	switch {
	case errors.As(p.heldErr, &unsafe):
		return nil // a file, and looked at as one
	case p.heldErr != nil:
		return []status.Finding{p.finding(status.LockMismatch, "", "%v", p.heldErr)}
	case p.live != nil && !p.held:
		return []status.Finding{p.finding(status.LockMismatch, p.daemon("restart"),
			"the daemon (pid %d) does not hold the lock %s: it was removed or replaced, and the daemon ends within seconds", p.live.PID, p.paths.Lock)}
	case p.live == nil && !p.held && p.fileErr == nil && p.process == nil:
		return []status.Finding{p.finding(status.LockMismatch, fmt.Sprintf("kill %d", p.file.PID),
			"the daemon (pid %d) runs without its lock %s and does not answer", p.file.PID, p.paths.Lock)}
	}
	return nil
}

// checkSocket looks at what lies at the socket's path.
func (p *patient) checkSocket(context.Context) []status.Finding {
	path := p.paths.Socket
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	recorded := p.record()
	starting := recorded != nil && recorded.State == status.StateStarting
	switch {
	case errors.Is(err, unix.ENOENT) && p.running() && !starting:
		return []status.Finding{p.finding(status.SocketMissing, p.daemon("restart"), "a daemon runs, and there is no %s: nobody can connect", path)}
	case err != nil:
		return nil
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return []status.Finding{p.finding(status.SocketForeign, aside(path), "%s is not a socket; it is in the way of one", path)}
	case int(st.Uid) != os.Geteuid():
		return []status.Finding{p.finding(status.SocketForeign, "Choose another directory with --dir.", "%s belongs to uid %d", path, st.Uid)}
	case st.Mode&0o077 != 0:
		return []status.Finding{p.finding(status.SocketUnsafe, "chmod 600 "+private.Quote(path), "%s has mode %04o", path, st.Mode&0o7777)}
	case p.running() && recorded != nil && recorded.Identity.SocketInode != 0 &&
		(recorded.Identity.SocketInode != st.Ino || recorded.Identity.SocketDevice != uint64(st.Dev)):
		return []status.Finding{p.finding(status.SocketForeign, p.daemon("restart"), "%s is not the socket that the daemon (pid %d) has made", path, recorded.PID)}
	}
	return nil
}

// checkAnswer judges what came back when the daemon was asked.
func (p *patient) checkAnswer(context.Context) []status.Finding {
	var remote *RemoteError
	var foreign *endpoint.PeerError
	switch {
	case p.live != nil && p.live.ProtocolVersion != status.ProtocolVersion:
		return []status.Finding{p.finding(status.VersionUnsupported, p.daemon("restart"),
			"the daemon (%s) speaks version %d and this program version %d", p.live.Identity.Build, p.live.ProtocolVersion, status.ProtocolVersion)}
	case p.live != nil && p.live.State == status.StateDraining:
		return []status.Finding{p.finding(status.DaemonDraining, "", "pid %d answers what is in flight and then ends", p.live.PID)}
	case p.live != nil:
		return nil
	case errors.As(p.liveErr, &foreign):
		return []status.Finding{p.finding(status.SocketForeign, sentence(foreign.Remedy), "%s", foreign.Message)}
	case errors.As(p.liveErr, &remote) && remote.Code == int(codePeerRefused):
		return []status.Finding{p.finding(status.PeerRefused, "Run it outside of the sandbox.", "the daemon refuses this program: %s", remote.Message)}
	case errors.As(p.liveErr, &remote) && remote.Code == int(codeUnknownMethod):
		return []status.Finding{p.finding(status.VersionUnsupported, p.daemon("restart"), "%s", remote.Message)}
	case p.held:
		return p.silent()
	}
	return nil
}

// silent says of a daemon that holds the lock and does not answer why that may be.
func (p *patient) silent() []status.Finding {
	if p.fileErr != nil || p.process != nil {
		return []status.Finding{p.finding(status.DaemonUnresponsive, "See who has the lock: fuser -v "+private.Quote(p.paths.Lock),
			"a process holds the lock, and no status file says which: %v", p.liveErr)}
	}
	pid := p.file.PID
	switch {
	case proc.Stopped(pid):
		return []status.Finding{p.finding(status.DaemonUnresponsive, fmt.Sprintf("kill -CONT %d", pid), "pid %d was stopped by a signal", pid)}
	case p.file.State == status.StateStarting:
		return []status.Finding{p.finding(status.DaemonStarting, "", "pid %d started %v ago and does not serve yet", pid, p.now.Sub(p.file.StartedAt).Round(time.Second))}
	default:
		return []status.Finding{p.finding(status.DaemonUnresponsive, p.daemon("restart"), "pid %d has not answered for %v: %v", pid, answerLimit, p.liveErr)}
	}
}

// checkPresence says why there is no daemon.
func (p *patient) checkPresence(context.Context) []status.Finding {
	switch {
	case p.running():
		return nil
	case p.fileErr == nil && p.process != nil && p.file.Socket == p.paths.Socket:
		return []status.Finding{p.finding(status.DaemonCrashed, p.daemon("start"), "%s; it left its status behind: %v", p.absence(), p.process)}
	case p.fileErr == nil:
		return nil
	}
	if at, marked, err := life.StopMarked(p.paths.Dir); err == nil && marked {
		return []status.Finding{status.DaemonStopped.Finding("a client that connects anew starts it", p.daemon("start"), at)}
	}
	return []status.Finding{p.finding(status.DaemonNotRunning, p.daemon("start"), "it starts by itself when a client connects")}
}

func (p *patient) checkIdentity(context.Context) []status.Finding {
	if p.live == nil || p.process == nil {
		return nil
	}
	return []status.Finding{p.finding(status.IdentityMismatch, p.daemon("restart"), "%v", p.process)}
}

func (p *patient) checkBuild(context.Context) []status.Finding {
	if p.live == nil || p.live.Identity.Build == Version() {
		return nil
	}
	return []status.Finding{p.finding(status.DaemonOutdated, p.daemon("restart"), "the daemon is %s, this program is %s", p.live.Identity.Build, Version())}
}

// checkStatusFile compares the status file with the daemon.
func (p *patient) checkStatusFile(context.Context) []status.Finding {
	path := p.paths.Status
	rewrite := p.daemon("status") // a daemon that is asked brings its file up to date
	if p.live == nil {
		rewrite = p.daemon("start")
	}
	var version *status.VersionError
	switch {
	case errors.Is(p.fileErr, fs.ErrNotExist):
		if p.live == nil {
			return nil
		}
		return []status.Finding{p.finding(status.StatusStale, rewrite, "%s is missing, though the daemon (pid %d) runs", path, p.live.PID)}
	case errors.As(p.fileErr, &version):
		return []status.Finding{p.finding(status.VersionUnsupported, rewrite, "%v", version)}
	case p.fileErr != nil:
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			return nil // a file, and looked at as one
		}
		return []status.Finding{p.finding(status.StatusUnreadable, rewrite, "%v", p.fileErr)}
	case p.file.Socket != p.paths.Socket && filepath.Dir(path) == p.paths.Dir:
		return []status.Finding{p.finding(status.StatusForeign, aside(path), "%s is that of the daemon at %s", path, p.file.Socket)}
	case p.file.Socket != p.paths.Socket:
		return []status.Finding{p.finding(status.StatusForeign, "Name another file with --status.", "%s is that of the daemon at %s", path, p.file.Socket)}
	case p.live != nil && p.file.Identity.Instance != p.live.Identity.Instance:
		return []status.Finding{p.finding(status.StatusStale, rewrite, "%s is that of an earlier daemon (pid %d)", path, p.file.PID)}
	}
	return nil
}

// checkRecord looks at the record of calls.
func (p *patient) checkRecord(context.Context) []status.Finding {
	if p.stateErr != nil {
		return []status.Finding{p.finding(status.CheckFailed, "", "the record of calls could not be read: %v", p.stateErr)}
	}
	pending := p.state.Pending()
	if p.config != nil && p.config.RecoveryPending == config.PendingOff {
		pending = nil
	}
	return recordFindings(pending, p.state.Problems, p.place.Command(), p.now)
}

// maxLogFile is more than any log is let grow before it is rotated.
const maxLogFile = 16 << 20

// checkLog makes sure that the log can be written, and that no log is larger
// than it may be.
func (p *patient) checkLog(context.Context) []status.Finding {
	var all []status.Finding
	_, err := os.Lstat(p.paths.Log)
	switch {
	case errors.Is(err, fs.ErrNotExist) && p.live != nil:
		all = append(all, p.finding(status.LogUnwritable, p.daemon("restart"), "%s was removed: what the daemon logs goes nowhere", p.paths.Log))
	case err == nil:
		if err := unix.Access(p.paths.Log, unix.W_OK); err != nil {
			all = append(all, p.finding(status.LogUnwritable, "", "%s: %v", p.paths.Log, err))
		}
	}
	logs, _ := filepath.Glob(filepath.Join(p.paths.Servers, "*.log*")) // the pattern is a good one, or the directory's name is odd
	for _, path := range append(logs, p.paths.Log) {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > maxLogFile {
			all = append(all, p.finding(status.LogLarge, ": > "+private.Quote(path), "%s has %d MiB", path, info.Size()>>20))
		}
	}
	return all
}

// interrupted is how old a temporary file is that a running daemon does not work on.
const interrupted = time.Minute

// checkTemporaryFiles looks for what writes that were cut short have left.
func (p *patient) checkTemporaryFiles(context.Context) []status.Finding {
	command := "rm -f"
	found := 0
	for _, path := range []string{
		filepath.Join(filepath.Dir(p.paths.Status), "."+filepath.Base(p.paths.Status)+".tmp"),
		p.paths.Recovery + ".tmp", p.paths.Journal + ".next",
	} {
		info, err := os.Lstat(path)
		if err != nil || p.running() && time.Since(info.ModTime()) < interrupted {
			continue
		}
		command += " " + private.Quote(path)
		found++
	}
	if found == 0 {
		return nil
	}
	return []status.Finding{p.finding(status.TemporaryFiles, command, "%d files; the next start removes them, too", found)}
}

func (p *patient) checkSessions(context.Context) []status.Finding {
	if p.live == nil || p.live.Limits.Sessions == 0 || p.live.ClientSessions < p.live.Limits.Sessions {
		return nil
	}
	return []status.Finding{p.finding(status.SessionsAtLimit, "Close clients, or raise limits.sessions in the configuration.", "%d sessions are open", p.live.ClientSessions)}
}

// checkClock looks whether what happened before now seems to come after it.
func (p *patient) checkClock(context.Context) []status.Finding {
	const tolerance = 2 * time.Second
	s := p.record()
	if s == nil || s.StartedAt.Before(time.Now().Add(tolerance)) {
		return nil
	}
	return []status.Finding{p.finding(status.ClockSkew, p.daemon("restart"), "the daemon started at %s, which is still to come", s.StartedAt.UTC().Format(time.RFC3339))}
}

// checkDisk looks whether there is room for the record and the logs.
func (p *patient) checkDisk(context.Context) []status.Finding {
	var st unix.Statfs_t
	err := unix.Statfs(p.paths.Dir, &st)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return nil
	case err != nil:
		return []status.Finding{p.finding(status.CheckFailed, "", "the file system of %s: %v", p.paths.Dir, err)}
	}
	d := disk{free: st.Bavail * uint64(st.Bsize), files: st.Files, freeFiles: st.Ffree, remote: isRemote(&st)}
	return p.judgeDisk(d)
}

// disk is what matters of a file system. Files is 0 where it has no bound.
type disk struct {
	free, files, freeFiles uint64
	remote                 bool
}

const (
	minFree      = 64 << 20
	minFreeFiles = 1000
)

func (p *patient) judgeDisk(d disk) []status.Finding {
	var all []status.Finding
	if d.free < minFree {
		all = append(all, p.finding(status.DiskLow, "Make room: without it calls that change something are refused.", "%d MiB are left for %s", d.free>>20, p.paths.Dir))
	}
	if d.files > 0 && d.freeFiles < minFreeFiles {
		all = append(all, p.finding(status.DiskLow, "Remove files: without room for new ones calls that change something are refused.", "%d more files fit where %s is", d.freeFiles, p.paths.Dir))
	}
	if d.remote {
		all = append(all, p.finding(status.FileSystemRemote, "Choose a directory on a local disk with --dir.", "%s: locks and sockets do not work there across machines", p.paths.Dir))
	}
	return all
}
