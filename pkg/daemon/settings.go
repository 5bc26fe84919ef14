package daemon

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Settings returns the current values of the flags, under their names in a config file.
func Settings(fs *pflag.FlagSet) map[string]any {
	out := map[string]any{}
	fs.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains([]string{"config", "help", "version"}, f.Name) {
			out[camel(f.Name)] = settingOf(f.Value)
		}
	})
	return out
}

// settingOf returns a flag's value for JSON: lists, maps, numbers and booleans as such,
// everything else as text.
func settingOf(v pflag.Value) any {
	if list, ok := v.(pflag.SliceValue); ok {
		return append([]string{}, list.GetSlice()...)
	}
	text := v.String()
	if _, is := v.(structured); is && text != "" {
		return json.RawMessage(text)
	}
	switch v.Type() {
	case "bool", "int", "int32", "int64", "float64":
		return json.RawMessage(text)
	case "stringToString":
		pairs := map[string]string{}
		for _, pair := range strings.Split(strings.Trim(text, "[]"), ",") {
			if key, value, ok := strings.Cut(pair, "="); ok {
				pairs[key] = value
			}
		}
		return pairs
	}
	return text
}

// camel converts cluster-dns to clusterDns.
func camel(name string) string {
	words := strings.Split(name, "-")
	for i := range words[1:] {
		if w := words[i+1]; w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}
