package mcpd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"interlock/mcpd/internal/config"
	"interlock/mcpd/internal/endpoint"
	"interlock/mcpd/internal/life"
	"interlock/mcpd/internal/logfile"
	"interlock/status"
)

// ReadLog returns the end of the log of the place's daemon or, if a server is
// named, of what that server has written to its standard error. A server that has
// no log and is not configured either is an error.
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
	path := paths.ServerLog(server)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	if cfg, err := config.Load(p.configPath(), false); err == nil {
		if _, ok := cfg.Server(server); ok {
			return path, nil
		}
	}
	if names := loggedServers(paths); len(names) > 0 {
		return "", fmt.Errorf("there is no log of a server %q; there are logs of: %s", server, strings.Join(names, ", "))
	}
	return "", fmt.Errorf("there is no log of a server %q; no server has one yet", server)
}

// loggedServers names the servers that have a log.
func loggedServers(paths endpoint.Paths) []string {
	files, _ := os.ReadDir(paths.Servers) // it is made with the first log
	var names []string
	for _, f := range files {
		encoded, isLog := strings.CutSuffix(f.Name(), ".log")
		if name, err := url.PathUnescape(encoded); isLog && err == nil {
			names = append(names, name)
		}
	}
	return names
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
