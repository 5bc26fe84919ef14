package apiserver

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"podium/pkg/scheme"
)

const auditMetadata = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"

// auditFlags parses command-line arguments into audit options.
func auditFlags(t *testing.T, args ...string) (*auditOptions, error) {
	t.Helper()
	o, f := &auditOptions{}, pflag.NewFlagSet("x", pflag.ContinueOnError)
	o.flags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o, o.parse()
}

func TestAuditFlags(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for file, text := range map[string]string{good: auditMetadata, bad: strings.Replace(auditMetadata, "Metadata", "Much", 1)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, row := range map[string]struct {
		args []string
		want []string // parts of the error; empty: accepted
	}{
		"nothing":      {nil, nil},
		"a policy":     {[]string{"--audit-policy-file=" + good, "--audit-log-path=-", "--audit-log-mode=blocking-strict"}, nil},
		"a bad policy": {[]string{"--audit-policy-file=" + bad}, []string{bad, "rules[0].level"}},
		"no policy":    {[]string{"--audit-policy-file=" + bad + "x"}, []string{"no such file"}},
		"all that is wrong": {[]string{"--audit-log-format=legacy", "--audit-log-mode=fast", "--audit-webhook-batch-max-size=0", "--audit-webhook-batch-throttle-qps=0", "--audit-log-maxsize=0"},
			[]string{"--audit-log-format=legacy", "--audit-log-mode=fast", "--audit-webhook-batch-buffer-size", "throttle-qps", "maxsize"}},
		"no throttle": {[]string{"--audit-webhook-batch-throttle-enable=false", "--audit-webhook-batch-throttle-qps=0"}, nil},
	} {
		_, err := auditFlags(t, row.args...)
		if (err == nil) != (row.want == nil) {
			t.Errorf("%s: got %v", name, err)
		}
		for _, part := range row.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error does not say %q: %v", name, part, err)
			}
		}
	}
}

func TestAuditLogIsRotatedAndClosed(t *testing.T) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditMetadata), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := auditFlags(t, "--audit-policy-file="+policy, "--audit-log-path="+filepath.Join(dir, "audit.log"), "--audit-log-maxsize=1")
	if err != nil {
		t.Fatal(err)
	}
	if a, closeLog, err := o.build(scheme.New(), nil, slog.New(slog.DiscardHandler)); err != nil || a == nil {
		t.Fatalf("%v, %v", a, err)
	} else {
		defer closeLog()
	}
	line := bytes.Repeat([]byte("x"), 1000)
	for range 30 { // 3 MB in pieces
		batch := make([][]byte, 100)
		for i := range batch {
			batch[i] = line
		}
		if err := o.log.Backend.Write(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "audit*.log"))
	if err != nil || len(files) < 3 {
		t.Errorf("3 MB in files of 1 MB are %v (%v)", files, err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 1<<20 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
}
