package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"podium/pkg/cluster/files"
)

// Phase is a phase of an upgrade. It is recorded before it starts, and the run
// after an interruption repeats it from its beginning: every phase is
// idempotent.
//
//	draining ─▶ keeping ─▶ swapping ─▶ starting ─▶ finishing ─▶ done
//	   └───────────┴───────────┴──────────┴──▶ undoing ─▶ undone
type Phase string

const (
	Draining  Phase = "draining"  // the node is cordoned and its pods are evicted
	Keeping   Phase = "keeping"   // copies the old files
	Swapping  Phase = "swapping"  // installs the new files
	Starting  Phase = "starting"  // restarts the daemons, one after the other
	Finishing Phase = "finishing" // the daemons work; what fails from here on is not rolled back
	Done      Phase = "done"
	Undoing   Phase = "undoing" // restores the old files and daemons
	Undone    Phase = "undone"
)

// Begun reports whether an upgrade is under way, and has to be continued.
func (p Phase) Begun() bool { return p != "" && p != Done && p != Undone }

// Journal is the state of an upgrade that survives its interruption.
type Journal struct {
	Phase    Phase    `json:"phase"`
	From     string   `json:"from"`              // version of the daemons before the upgrade
	To       string   `json:"to"`                // version that the upgrade installs
	Package  string   `json:"package"`           // path of the package
	Drain    bool     `json:"drain"`             // whether to drain the node
	Cordoned bool     `json:"cordoned"`          // whether the node was cordoned before the upgrade
	Touched  bool     `json:"touched"`           // whether files may have changed
	Added    []string `json:"added,omitempty"`   // files that did not exist before
	Backup   string   `json:"backup,omitempty"`  // file with the backup of the control plane
	Failure  string   `json:"failure,omitempty"` // why it was rolled back
}

// ReadJournal returns the zero Journal if the file does not exist.
func ReadJournal(file string) (j Journal, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &j)
	}
	if err != nil {
		return j, fmt.Errorf("read the state of an earlier upgrade: %w", err)
	}
	return j, nil
}

// Write replaces the file with the journal.
func (j Journal) Write(file string) error {
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	_, err = files.Write(file, data, 0o600)
	return err
}

// Before reports whether a successful upgrade runs p before q.
func (p Phase) Before(q Phase) bool {
	phases := []Phase{Draining, Keeping, Swapping, Starting, Finishing}
	return slices.Index(phases, p) < slices.Index(phases, q)
}
