package manager

import "testing"

func TestControllersFlag(t *testing.T) {
	tests := map[string]struct {
		asked []string
		want  bool
	}{
		"all":         {[]string{"*"}, true},
		"nothing":     {nil, true},
		"but not":     {[]string{"*", "-deployment-controller"}, false},
		"only this":   {[]string{"deployment-controller"}, true},
		"only others": {[]string{"namespace-controller"}, false},
	}
	for name, tc := range tests {
		if got := selected(tc.asked, "deployment-controller"); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
