package memorymanager

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podium/pkg/kubelet/checkpoint"
)

// upstreamFiles are state files with upstream's checksums.
var upstreamFiles = []string{
	`{"policyName":"None","machineState":{},"checksum":4236770233}`,
	`{"policyName":"static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":4215593881}`,
}

func TestUpstreamStateFilesAreReadAndWritten(t *testing.T) {
	for _, text := range upstreamFiles {
		r, err := checkpoint.Parse[record]([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := json.Marshal(newRecord(r.PolicyName, r.MachineState, r.Entries)); err != nil || string(got) != text {
			t.Errorf("written again: %s, %v; want %s", got, err, text)
		}
	}
	if _, err := checkpoint.Parse[record]([]byte(strings.Replace(upstreamFiles[1], "512", "513", 1))); err == nil {
		t.Error("a state with a wrong checksum is accepted")
	}
}

func TestUnusableStateIsRefused(t *testing.T) {
	m := newTest(t, t.TempDir())
	machine, err := json.Marshal(m.tables)
	if err != nil {
		t.Fatal(err)
	}
	static := func(machine []byte, entries string) string {
		return `{"policyName":"Static","machineState":` + string(machine) + `,"entries":` + entries + `}`
	}
	for name, c := range map[string]struct{ state, want string }{
		"other policy":   {upstreamFiles[0], `configured policy "Static" differs from state checkpoint policy "None"`},
		"corrupt":        {`{"policyName":"Static","checksum":1}`, "checkpoint is corrupted"},
		"other machine":  {static([]byte(`{}`), `{}`), "the expected machine state is different from the real one"},
		"null":           {static([]byte(`{"0":null,"1":null}`), `{}`), "the expected machine state is different from the real one"},
		"unknown node":   {static(machine, `{"a":{"c":[{"numaAffinity":[7],"type":"memory","size":1}]}}`), "the machine has no memory on NUMA node 7"},
		"unknown type":   {static(machine, `{"a":{"c":[{"numaAffinity":[0],"type":"cpu","size":1}]}}`), "the machine has no cpu"},
		"no node":        {static(machine, `{"a":{"c":[{"numaAffinity":[],"type":"memory","size":1}]}}`), "want ascending ids"},
		"huge id":        {static(machine, `{"a":{"c":[{"numaAffinity":[-1],"type":"memory","size":1}]}}`), "the machine has no memory on NUMA node -1"},
		"too much":       {static(machine, `{"a":{"c":[{"numaAffinity":[0],"type":"memory","size":99999999999}]}}`), "more are assigned"},
		"groups overlap": {static(machine, `{"a":{"c":[{"numaAffinity":[0],"type":"memory","size":1}]},"b":{"c":[{"numaAffinity":[0,1],"type":"memory","size":1}]}}`), "overlaps with another one"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, StateFile)
			if err := os.WriteFile(file, []byte(c.state), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := New(config(dir))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "drain the node, stop the kubelet, remove "+file) {
				t.Errorf("error %v, want %q and what to do", err, c.want)
			}
			if err := CheckNone(dir); (err == nil) != (name == "other policy") {
				t.Errorf("the policy None: %v", err)
			}
		})
	}
}

func FuzzParseState(f *testing.F) {
	for _, text := range upstreamFiles {
		f.Add([]byte(text))
	}
	m := newTest(f, f.TempDir())
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := checkpoint.Parse[record](data)
		if err != nil || m.check(&r) != nil {
			return
		}
		text, err := json.Marshal(newRecord(Static, m.machineState(r.Entries), r.Entries))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := checkpoint.Parse[record](text); err != nil || m.check(&again) != nil {
			t.Errorf("%s: %v", text, err)
		}
	})
}

func FuzzParseReservation(f *testing.F) {
	f.Add("0:memory=1Gi,hugepages-2Mi=4Mi")
	f.Add("x:memory=1")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := ParseReservation(text); err == nil && (r.Node < 0 || len(r.Limits) == 0) {
			t.Errorf("%q: %v", text, r)
		}
	})
}
