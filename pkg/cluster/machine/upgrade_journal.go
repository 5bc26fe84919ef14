package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// phase is what an upgrade is at. It is written down before it begins, so that
// whoever comes after an interruption does it again from its beginning: each
// can be done twice.
//
//	draining ─▶ keeping ─▶ swapping ─▶ starting ─▶ finishing ─▶ done
//	   └───────────┴───────────┴──────────┴──▶ undoing ─▶ undone
type phase string

const (
	phaseDraining  phase = "draining"  // the node takes no new pods, others are evicted
	phaseKeeping   phase = "keeping"   // the old files are copied
	phaseSwapping  phase = "swapping"  // the new files come to their places
	phaseStarting  phase = "starting"  // daemons are started anew, one after the other
	phaseFinishing phase = "finishing" // it works: the rest is done, and is not undone
	phaseDone      phase = "done"
	phaseUndoing   phase = "undoing" // the old files come back
	phaseUndone    phase = "undone"
)

// begun says whether there is something to go on with.
func (p phase) begun() bool { return p != "" && p != phaseDone && p != phaseUndone }

// journal is what must be known of an upgrade after its interruption.
type journal struct {
	Phase    phase    `json:"phase"`
	From     string   `json:"from"`              // version of the daemons before
	To       string   `json:"to"`                // and after
	Package  string   `json:"package"`           // where it came from
	Drain    bool     `json:"drain"`             // pods shall move
	Cordoned bool     `json:"cordoned"`          // the node took no pods before, either
	Touched  bool     `json:"touched"`           // files may have been changed
	Added    []string `json:"added,omitempty"`   // files that were not there before
	Backup   string   `json:"backup,omitempty"`  // of the control plane, before
	Failure  string   `json:"failure,omitempty"` // why it was undone
}

func readJournal(file string) (j journal, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &j)
	}
	if err != nil {
		return j, fmt.Errorf("read what an upgrade before has noted: %w", err)
	}
	return j, nil
}

// enter notes that a phase begins.
func (u *upgrading) enter(p phase) error {
	u.journal.Phase = p
	data, err := json.MarshalIndent(u.journal, "", "  ")
	if err != nil {
		return err
	}
	_, err = writeFile(u.at(journalFile), data, 0o600)
	return err
}

// phases, in their order.
var phases = []phase{phaseDraining, phaseKeeping, phaseSwapping, phaseStarting, phaseFinishing}
