package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// ConfigAPIVersion is the apiVersion of the daemons' config files.
const ConfigAPIVersion = "config.podium.dev/v1alpha1"

// upstreamVersions are the apiVersions of upstream's files, by kind, that are read, too. What
// such a file sets beyond the keys that the daemon knows is an error.
var upstreamVersions = map[string]string{"KubeSchedulerConfiguration": "kubescheduler.config.k8s.io/v1"}

// LoadConfig loads a config file for cmd; an empty path means no file. The file's kind is
// the command's name and "Configuration" (kube-proxy: KubeProxyConfiguration). A key
// that is a flag's name in camelCase sets that flag, unless it was given on the command
// line; the other keys are the JSON fields of into, a pointer to a struct, or nil if
// there are none. Any other key is an error; all errors are returned at once.
func LoadConfig(cmd *cobra.Command, path string, into any) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := applyConfig(cmd.Name(), cmd.Flags(), data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func applyConfig(name string, flags *pflag.FlagSet, data []byte, into any) error {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return err
	}
	var keys map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // otherwise 1000000 would become 1e+06
	if err := d.Decode(&keys); err != nil {
		return fmt.Errorf("the file must be a map from names to values: %w", err)
	}
	if err := checkKind(name, keys); err != nil {
		return err
	}
	byName := flagsByKey(flags)
	rest := map[string]any{}
	var errs []error
	for _, key := range sortedKeys(keys) {
		f := byName[strings.ToLower(key)]
		if f == nil {
			rest[key] = keys[key]
			continue
		}
		if f.Changed {
			continue // the command line takes precedence
		}
		if err := setFlag(f, keys[key]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	return errors.Join(append(errs, decodeRest(rest, into))...)
}

func checkKind(name string, keys map[string]any) error {
	wanted := kindOf(name)
	apiVersion, kind := keys["apiVersion"], keys["kind"]
	delete(keys, "apiVersion")
	delete(keys, "kind")
	known := apiVersion == ConfigAPIVersion || apiVersion != nil && apiVersion == upstreamVersions[wanted]
	if !known || !strings.EqualFold(fmt.Sprint(kind), wanted) {
		return fmt.Errorf("the file must begin with apiVersion: %s, kind: %s", ConfigAPIVersion, wanted)
	}
	return nil
}

// kindOf converts kube-scheduler to KubeSchedulerConfiguration.
func kindOf(name string) string {
	var b strings.Builder
	for _, word := range strings.Split(name, "-") {
		if word == "" {
			continue
		}
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String() + "Configuration"
}

// flagsByKey maps the flags by their names in lower-case camelCase, so that lookups
// ignore case: both podCidr and podCIDR are pod-cidr.
func flagsByKey(flags *pflag.FlagSet) map[string]*pflag.Flag {
	out := map[string]*pflag.Flag{}
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains([]string{"config", "help", "version"}, f.Name) {
			out[strings.ReplaceAll(f.Name, "-", "")] = f
		}
	})
	return out
}

// structured is a flag whose value in a config file is more than a scalar, a list or a
// map of scalars.
type structured interface{ SetJSON(data []byte) error }

func setFlag(f *pflag.Flag, value any) error {
	if s, is := f.Value.(structured); is {
		data, err := json.Marshal(value)
		if err != nil {
			return err
		}
		return s.SetJSON(data)
	}
	var err error
	switch v := value.(type) {
	case []any:
		list, ok := f.Value.(pflag.SliceValue)
		if !ok {
			return errors.New("a list is not understood here")
		}
		words := make([]string, len(v))
		for i := range v {
			if words[i], err = scalar(v[i]); err != nil {
				return err
			}
		}
		err = list.Replace(words)
	case map[string]any:
		pairs := make([]string, 0, len(v))
		for _, k := range sortedKeys(v) {
			word, err := scalar(v[k])
			if err != nil {
				return err
			}
			pairs = append(pairs, k+"="+word)
		}
		err = f.Value.Set(strings.Join(pairs, ","))
	default:
		var word string
		if word, err = scalar(v); err != nil {
			return err
		}
		err = f.Value.Set(word)
	}
	if err != nil {
		return fmt.Errorf("invalid value: %w", err)
	}
	return nil
}

func scalar(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool, json.Number:
		return fmt.Sprint(v), nil
	}
	return "", fmt.Errorf("%v is neither text, number nor boolean", v)
}

func decodeRest(rest map[string]any, into any) error {
	if len(rest) == 0 {
		return nil
	}
	if into == nil {
		names := sortedKeys(rest)
		for i := range names {
			names[i] = fmt.Sprintf("unknown field %q", names[i])
		}
		return errors.New(strings.Join(names, ", "))
	}
	text, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
