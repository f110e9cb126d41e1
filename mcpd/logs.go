package mcpd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"interlock/mcpd/internal/life"
	"interlock/mcpd/internal/logfile"
	"interlock/status"
)

// ReadLog returns the end of the log of the place's daemon or, if a server is
// named, of what that server has written to its standard error.
func ReadLog(place Place, server string) (status.LogsAnswer, error) {
	path, err := place.logPath(server)
	if err != nil {
		return status.LogsAnswer{}, err
	}
	return status.ReadLog(path)
}

// FollowLog calls fn with the end of the log, as [ReadLog] has it, and then with
// every line that is added, until ctx ends or fn fails.
func FollowLog(ctx context.Context, place Place, server string, fn func(lines string) error) error {
	path, err := place.logPath(server)
	if err != nil {
		return err
	}
	return logfile.Follow(ctx, path, status.MaxBytes, fn)
}

func (p Place) logPath(server string) (string, error) {
	paths, err := p.paths()
	if err != nil {
		return "", err
	}
	if server == "" {
		return paths.Log, nil
	}
	return paths.ServerLog(server), nil
}

// UnitFiles returns the text of the files by which a service manager starts this
// program as the daemon of the place: a service and a socket of systemd's user
// manager, and an agent of launchd.
func UnitFiles(place Place) (service, socket, agent string, err error) {
	paths, err := place.paths()
	if err != nil {
		return "", "", "", err
	}
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return "", "", "", fmt.Errorf("finding this program: %w", err)
	}
	service, socket, agent = life.UnitFiles(append([]string{program}, place.serve(paths)...), paths.Socket)
	return service, socket, agent, nil
}
