package nodevolumelimits

import "testing"

func TestFits(t *testing.T) {
	limits := map[string]int32{"a": 2, "none": 0}
	used := map[disk]bool{{"a", "1"}: true, {"b", "1"}: true, {"full", "1"}: true}
	for name, row := range map[string]struct {
		reason string
		wanted []disk
		want   bool
	}{
		"Room":      {"one of two is used", []disk{{"a", "2"}}, true},
		"Full":      {"two more do not fit", []disk{{"a", "2"}, {"a", "3"}}, false},
		"Shared":    {"a volume that the node has counts once", []disk{{"a", "1"}, {"a", "2"}}, true},
		"Unlimited": {"a driver without a limit takes any number", []disk{{"b", "2"}, {"b", "3"}, {"b", "4"}}, true},
		"Zero":      {"a limit of zero allows none", []disk{{"none", "1"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fits(row.wanted, used, limits); got != row.want {
				t.Errorf("%v, but %s", got, row.reason)
			}
		})
	}
}
