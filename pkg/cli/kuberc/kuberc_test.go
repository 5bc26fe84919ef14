package kuberc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const sample = `apiVersion: kubectl.config.k8s.io/v1beta1
kind: Preference
defaults:
- command: get
  options: [{name: output, default: wide}]
aliases:
- name: getn
  command: get
  prependArgs: [nodes]
  options: [{name: output, default: json}]
`

func TestParse(t *testing.T) {
	want := &Preference{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		Defaults: []Defaults{{Command: "get", Options: []Option{{"output", "wide"}}}},
		Aliases:  []Alias{{Name: "getn", Command: "get", PrependArgs: []string{"nodes"}, Options: []Option{{"output", "json"}}}},
	}
	got, warning, err := Parse([]byte("apiVersion: kubectl.config.k8s.io/v1\nkind: Preference\n---\n" + sample))
	if err != nil || warning != "" {
		t.Errorf("%v, warning %q", err, warning)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, warning, err := Parse([]byte(sample + "more: x\n")); err != nil || got == nil || !strings.Contains(warning, `"more"`) {
		t.Errorf("an unknown field is no warning: %v %q %v", got, warning, err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for reason, row := range map[string]struct{ old, new, want string }{
		"another version":            {"v1beta1", "v1alpha1", "no document is"},
		"a name that is no word":     {"getn", "get-n", "invalid alias name"},
		"a flag with dashes":         {"name: output", "name: --output", "should be in long form"},
		"no command":                 {"command: get\n  prepend", "command: ''\n  prepend", "has no command"},
		"two aliases of one name":    {"- name: getn", "- {name: getn, command: get}\n- name: getn", "duplicate alias name"},
		"an unknown policy":          {"kind: Preference", "kind: Preference\ncredentialPluginPolicy: Some", "invalid credentialPluginPolicy"},
		"a list without its policy":  {"kind: Preference", "kind: Preference\ncredentialPluginAllowlist: [{command: x}]", "if, and only if"},
		"a file that is not YAML":    {"defaults:", "\tdefaults", "yaml"},
		"a field of another type":    {"prependArgs: [nodes]", "prependArgs: {}", "prependArgs"},
		"an empty file has no value": {sample, "", "no document is"},
	} {
		text := strings.Replace(sample, row.old, row.new, 1)
		if _, _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", reason, err, row.want)
		}
	}
}

func TestLoad(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, ".kube", "kuberc")
	t.Setenv("HOME", home)
	t.Setenv("KUBERC", "")
	load := func(flag string, preferences, warns, fails bool) {
		t.Helper()
		if p, warning, err := Load(flag); (p != nil) != preferences || (warning != "") != warns || (err != nil) != fails {
			t.Errorf("flag %q, KUBERC=%q: %v, %q, %v", flag, os.Getenv("KUBERC"), p, warning, err)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load("", false, false, false)  // none is fine
	load(file, false, false, true) // but not if it is named
	write(sample)
	load("", true, false, false)
	load(file, true, false, false)
	write("nonsense: true")
	load("", false, true, false) // must not break every command
	load(file, false, false, true)
	t.Setenv("KUBERC", file)
	load("", false, false, true)
	t.Setenv("KUBERC", "off")
	load("", false, false, false)
	load(file, false, false, true)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("---\n---\nkind: Preference"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, _, err := Parse(data); err == nil && p == nil {
			t.Error("neither preferences nor an error")
		}
	})
}
