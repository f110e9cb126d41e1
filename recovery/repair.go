package recovery

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Repaired is what Repair did.
type Repaired struct {
	Files []string `json:"files"` // where the damaged files are kept now
	Runs  int      `json:"runs"`  // pending runs after it
}

// setAside renames a damaged file, durably. From then on it stops mutations by being
// there, and what is intact in it is read with every start.
func setAside(o Options, name string) error {
	aside, err := asideName(o, name, corruptSuffix)
	if err != nil {
		return err
	}
	if err := o.FS.Rename(name, aside); err != nil {
		return err
	}
	return o.FS.SyncDir(filepath.Dir(name))
}

// Repair ends a quarantine: what is intact in the damaged files is taken over, the
// recovery file rewritten, and the files renamed so that they stop nothing any more.
// With nothing damaged it does nothing. A file of another version is not touched, and
// stays ErrQuarantined.
func (j *Journal) Repair() (Repaired, error) {
	j.ackTurn <- struct{}{}
	defer func() { <-j.ackTurn }()
	j.mu.Lock()
	frozen := j.frozen
	refusal := j.refusalLocked(kindAck)
	j.mu.Unlock()
	if frozen || refusal != nil {
		return Repaired{}, fmt.Errorf("repairing: %w", refusal)
	}
	l := newLoaded()
	if err := l.loadCorrupt(j.o); err != nil {
		return Repaired{}, fmt.Errorf("repairing: %w", err)
	}
	if l.frozen {
		return Repaired{}, fmt.Errorf("repairing: %w: %s", ErrQuarantined, l.problems[0].Detail)
	}
	j.takeOver(l)
	if err := j.saveRecovery(); err != nil {
		return Repaired{}, fmt.Errorf("repairing: writing recovery file: %w", err)
	}
	files, err := j.releaseCopies(l.corrupt)
	if err != nil {
		return Repaired{}, fmt.Errorf("repairing: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.blocks = slices.DeleteFunc(j.blocks, func(p Problem) bool {
		return p.Code == CodeDamaged || p.Code == CodeBadRecovery
	})
	return Repaired{Files: files, Runs: len(j.state.pending)}, nil
}

// takeOver adds what is pending by the damaged files alone. It all began under an
// earlier daemon, so nothing that is active here is among it.
func (j *Journal) takeOver(l *loaded) {
	runs, _ := l.pending(j.o.BootID)
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, r := range runs {
		_, acked := j.state.acked[id]
		if j.state.pending[id] == nil && !acked {
			j.state.addPending(r, false)
		}
	}
}

// releaseCopies renames damaged files that have been taken over.
func (j *Journal) releaseCopies(names []string) (files []string, err error) {
	for _, name := range names {
		dir, base := filepath.Split(name)
		done := filepath.Join(dir, strings.Replace(base, corruptSuffix, repairedSuffix, 1))
		if err = j.o.FS.Rename(name, done); err != nil {
			return nil, err
		}
		files = append(files, done)
	}
	return files, errors.Join(
		j.o.FS.SyncDir(filepath.Dir(j.o.Journal)), j.o.FS.SyncDir(filepath.Dir(j.o.Recovery)))
}

// Repair is [Journal.Repair] without a running daemon; the caller holds the daemon's
// lock.
func Repair(o Options) (done Repaired, err error) {
	err = offline(o, func(j *Journal) error {
		done, err = j.Repair()
		return err
	})
	return done, err
}
