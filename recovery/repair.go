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
	l, err := load(j.o)
	if err != nil {
		return Repaired{}, fmt.Errorf("repairing: %w", err)
	}
	if len(l.setAside) > 0 || l.frozen {
		return Repaired{}, fmt.Errorf("repairing: %w: %s %s", ErrQuarantined, l.problems[len(l.problems)-1].Detail, "Restart the daemon first.")
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

// takeOver adds pending runs that the journal does not know of. Everything in damaged
// files began under an earlier daemon, so what is active here is never among it.
func (j *Journal) takeOver(l *loaded) {
	runs, _ := l.pending(j.o.BootID)
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, r := range runs {
		_, acked := j.state.acked[id]
		if j.state.pending[id] == nil && j.state.active[id] == nil && !acked && !j.ownID(id) {
			j.state.addPending(r, false)
		}
	}
}

// ownID says whether this Open gave the id out: its run, though on disk, is no
// business of a repair.
func (j *Journal) ownID(id string) bool {
	return strings.HasPrefix(id, fmt.Sprintf("%d-", j.number))
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
