package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestParsedFlags(t *testing.T) {
	a, b := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")
	for name, tc := range map[string]struct {
		args []string
		one  netip.Prefix
		many []netip.Prefix
		bad  string // part of the error
	}{
		"Defaults":     {nil, a, []netip.Prefix{a}, ""},
		"Given":        {[]string{"--one=192.0.2.0/24", "--many=192.0.2.0/24"}, b, []netip.Prefix{b}, ""},
		"CommaList":    {[]string{"--many=192.0.2.0/24,10.0.0.0/8"}, a, []netip.Prefix{b, a}, ""},
		"Repeated":     {[]string{"--many=192.0.2.0/24", "--many=10.0.0.0/8"}, a, []netip.Prefix{b, a}, ""},
		"Empty":        {[]string{"--many="}, a, nil, ""},
		"InvalidValue": {[]string{"--one=here"}, a, nil, `"--one"`},
		"InvalidItem":  {[]string{"--many=10.0.0.0/8,here"}, a, nil, `"--many"`},
	} {
		t.Run(name, func(t *testing.T) {
			var one netip.Prefix
			var many []netip.Prefix
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			ParsedVar(fs, &one, "one", "10.0.0.0/8", netip.ParsePrefix, "")
			ParsedSliceVar(fs, &many, "many", []string{"10.0.0.0/8"}, netip.ParsePrefix, "")
			err := fs.Parse(tc.args)
			if tc.bad != "" {
				if err == nil || !strings.Contains(err.Error(), tc.bad) {
					t.Fatalf("got %v, want an error of %s", err, tc.bad)
				}
				return
			}
			if err != nil || one != tc.one || !slices.Equal(many, tc.many) {
				t.Errorf("got %v %v, error %v", one, many, err)
			}
		})
	}
}

func TestParsedFlagsInConfigFile(t *testing.T) {
	var many []netip.Prefix
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	ParsedSliceVar(fs, &many, "node-ranges", nil, netip.ParsePrefix, "")
	file := "apiVersion: " + ConfigAPIVersion + "\nkind: XConfiguration\nnodeRanges: [10.0.0.0/8]\n"
	if err := applyConfig("x", fs, []byte(file), nil); err != nil || len(many) != 1 {
		t.Errorf("got %v, error %v", many, err)
	}
	if usage := fs.FlagUsages(); strings.Contains(usage, "default") {
		t.Errorf("an empty default is shown: %s", usage)
	}
}
