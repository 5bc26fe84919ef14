package pods

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"podium/pkg/kubelet/cri/crifake"
)

// crashing is a runtime whose containers write a log, and one that has been rotated, into the
// directory, and exit with an error.
func crashing(logs *string) crifake.Config {
	return crifake.Config{Behave: func(s crifake.Start) crifake.Behaviour {
		log := filepath.Join(*logs, "default_a_uid-a", "app", fmt.Sprint(s.Attempt)+".log")
		err := errors.Join(os.WriteFile(log, nil, 0o640), os.WriteFile(log+".20260102-150405.gz", nil, 0o640))
		return crifake.Behaviour{Exits: true, ExitCode: 1, StartErr: err}
	}}
}

// names returns the base names of the paths that match the pattern.
func names(t *testing.T, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range all {
		all[i] = filepath.Base(path)
	}
	return all
}

func TestLogsAreRemovedWithTheirContainers(t *testing.T) {
	var logs string
	bubbleWith(t, crashing(&logs), func(r *rig) { logs = filepath.Join(r.dir, "logs") }, func(r *rig) {
		r.api.create(newPod("a"))
		r.pass(time.Minute)
		want := []string{"2.log", "2.log.20260102-150405.gz", "3.log", "3.log.20260102-150405.gz"}
		if got := names(r.t, filepath.Join(logs, "default_a_uid-a", "app", "*")); !slices.Equal(got, want) {
			r.t.Errorf("logs %q, want %q", got, want)
		}
		if got := r.calls("RemoveContainer"); len(got) != 2 {
			r.t.Errorf("calls %q", got)
		}
	})
}
