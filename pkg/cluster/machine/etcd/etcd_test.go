package etcd

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestJudge checks that a join continues from whatever state an earlier one
// left.
func TestJudge(t *testing.T) {
	const mine = "https://192.0.2.12:2380"
	first := &etcdserverpb.Member{ID: 1, Name: "a", PeerURLs: []string{"https://192.0.2.11:2380"}}
	for name, row := range map[string]struct {
		reason  string
		self    *etcdserverpb.Member
		hasData bool
		want    membership
		refused string
	}{
		"New":       {reason: "this machine is no member", want: membership{add: true}},
		"Stranger":  {reason: "data of a member that was removed, or of another cluster", hasData: true, refused: "podium reset"},
		"Announced": {reason: "it was added, and the run ended before etcd started", self: &etcdserverpb.Member{ID: 2, IsLearner: true}, want: membership{id: 2}},
		"Learning":  {reason: "the run ended before it was promoted", self: &etcdserverpb.Member{ID: 2, Name: "b", IsLearner: true}, hasData: true, want: membership{id: 2}},
		"Starting":  {reason: "etcd has its data, and has not told its name yet", self: &etcdserverpb.Member{ID: 2, IsLearner: true}, hasData: true, want: membership{id: 2}},
		"Member":    {reason: "all was done", self: &etcdserverpb.Member{ID: 2, Name: "b"}, hasData: true, want: membership{id: 2}},
		"Replaced":  {reason: "the machine was lost with its data and is back, blank: a member may not forget", self: &etcdserverpb.Member{ID: 2, Name: "b"}, want: membership{remove: 2, add: true}},
	} {
		t.Run(name, func(t *testing.T) {
			members := []*etcdserverpb.Member{first}
			if row.self != nil {
				row.self.PeerURLs = []string{mine}
				members = append(members, row.self)
			}
			got, err := judge(members, mine, row.hasData)
			if row.refused != "" {
				if err == nil || !strings.Contains(err.Error(), row.refused) {
					t.Errorf("%s: got %v", row.reason, err)
				}
				return
			}
			if err != nil || got != row.want {
				t.Errorf("%s: got %+v, %v; want %+v", row.reason, got, err, row.want)
			}
		})
	}
}

func TestInitialClusterNamesTheNewMember(t *testing.T) {
	got := initialCluster([]*etcdserverpb.Member{
		{ID: 2, PeerURLs: []string{"https://192.0.2.10:2380"}},
		{ID: 1, Name: "first", PeerURLs: []string{"https://192.0.2.9:2380"}},
	}, 2, "alpha")
	if want := "alpha=https://192.0.2.10:2380,first=https://192.0.2.9:2380"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
