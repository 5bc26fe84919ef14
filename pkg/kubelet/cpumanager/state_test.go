package cpumanager

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podium/pkg/kubelet/checkpoint"
)

// upstreamFiles are state files that upstream's kubelets have written.
var upstreamFiles = []string{
	`{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`,
	`{"policyName":"static","defaultCpuSet":"0-63","checksum":1058907510}`,
	`{"policyName":"static","defaultCpuSet":"0-1","checksum":1636926438}`,
	`{"policyName":"static","defaultCpuSet":"0,4-27","entries":{"39b37746-7f5e-4064-b8e1-eebd2bfaa003":{"app":"1-3"}},"checksum":3300516549}`,
	`{"policyName":"static","defaultCpuSet":"0,4-8,12-15","entries":{"088fe178-cec9-4eb9-ba3c-cf45cba46371":{"qos-demo-ctr":"1,9"},"681eca58-a216-4ec4-a57b-941cad3c4e0f":{"qos-demo-ctr":"2-3,10-11"}},"checksum":2993692383}`,
}

func TestUpstreamStateFilesAreReadAndWritten(t *testing.T) {
	for _, text := range upstreamFiles {
		r, err := checkpoint.Parse[record]([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		shared, all, err := r.sets()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(newRecord(r.PolicyName, shared, all)); err != nil || string(got) != text {
			t.Errorf("written again: %s, %v; want %s", got, err, text)
		}
	}
	if _, err := checkpoint.Parse[record]([]byte(strings.Replace(upstreamFiles[1], "0-63", "0-62", 1))); err == nil {
		t.Error("a state with a wrong checksum is accepted")
	}
}

func TestUnusableStateIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ state, want string }{
		"other policy":       {upstreamFiles[0], `configured policy "static" differs from state checkpoint policy "none"`},
		"other CPUs":         {upstreamFiles[1], `current set of available CPUs "0-3" doesn't match with CPUs in state "0-63"`},
		"corrupt":            {`{"policyName":"static","defaultCpuSet":"0-3","checksum":1}`, "checkpoint is corrupted"},
		"not JSON":           {`{`, "unexpected end of JSON input"},
		"not a list":         {`{"policyName":"static","defaultCpuSet":"0-x"}`, `"x" is not an id`},
		"reserved is taken":  {`{"policyName":"static","defaultCpuSet":"1-3","entries":{"a":{"c":"0"}}}`, `not all reserved cpus: "0" are present in defaultCpuSet: "1-3"`},
		"overlaps the pool":  {`{"policyName":"static","defaultCpuSet":"0-3","entries":{"a":{"c":"3"}}}`, `pod: a, container: c cpuset: "3" overlaps with default cpuset "0-3"`},
		"two pods":           {`{"policyName":"static","defaultCpuSet":"0-2","entries":{"a":{"c":"3"},"b":{"c":"3"}}}`, "belong to another pod"},
		"a CPU was added":    {`{"policyName":"static","defaultCpuSet":"0-2"}`, `"0-3" doesn't match with CPUs in state "0-2"`},
		"a CPU went offline": {`{"policyName":"static","defaultCpuSet":"0-2","entries":{"a":{"c":"3-4"}}}`, `"0-3" doesn't match with CPUs in state "0-4"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, StateFile)
			if err := os.WriteFile(file, []byte(c.state), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := New(config(dir, small, Options{}))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "drain the node, stop the kubelet, remove "+file) {
				t.Errorf("error %v, want %q and what to do", err, c.want)
			}
		})
	}
}

func TestPolicyNoneRefusesTheStateOfStatic(t *testing.T) {
	dir := t.TempDir()
	if err := CheckNone(dir); err != nil {
		t.Error(err)
	}
	for i, text := range upstreamFiles {
		if err := os.WriteFile(filepath.Join(dir, StateFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckNone(dir); (err == nil) != (i == 0) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzParseState(f *testing.F) {
	for _, text := range upstreamFiles {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := checkpoint.Parse[record](data)
		if err != nil {
			return
		}
		shared, all, err := r.sets()
		if err != nil {
			return
		}
		text, err := json.Marshal(newRecord(r.PolicyName, shared, all))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.Parse[record](text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	})
}
