package endpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"interlock/mcpd/internal/endpoint/private"
)

// Prepare makes the directories of the endpoint, as needed, and verifies them
// as [Verify] does. It changes the mode of nothing that exists.
func Prepare(p Paths) error {
	return eachDir(p, private.MakeDir)
}

// Verify reports why the endpoint may not be used by the user who runs this
// process, as an [UnsafeError]: its directories must be ours alone, and that
// user must be one that can be told from others. It changes nothing.
// Directories that do not exist are no fault.
func Verify(p Paths) error {
	return eachDir(p, func(dir string) error {
		if err := private.CheckDir(dir); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func eachDir(p Paths, do func(string) error) error {
	if err := private.CheckUser(); err != nil {
		return err
	}
	dirs := []string{p.Dir, p.Servers}
	if parent := filepath.Dir(p.Socket); parent != p.Dir {
		dirs = append(dirs, parent)
	}
	for _, dir := range dirs {
		if err := do(dir); err != nil {
			return fmt.Errorf("preparing the endpoint: %w", err)
		}
	}
	return nil
}
