package machine

import (
	"bytes"
	"crypto/sha256"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/cluster/files"
	"podium/pkg/cluster/machine/archive"
)

// TestRestoreChangesNothingWhenTheBackupIsNotForHere also covers damaged
// backups.
func TestRestoreChangesNothingWhenTheBackupIsNotForHere(t *testing.T) {
	sum := sha256.Sum256([]byte("database"))
	db := "database" + string(sum[:])
	setup := "nodeName: a\nnodeIP: 192.0.2.99\nclusterName: podium\ncontrolPlaneEndpoint: 192.0.2.99:6443\npodSubnet: 10.244.0.0/16\nserviceSubnet: 10.96.0.0/16\ndnsDomain: cluster.local\nbindPort: 6443\ncontrolPlanePlacement: dedicated\ncgroupDriver: systemd\n"
	dir, hashes := t.TempDir(), map[string]string{}
	for name, content := range map[string]string{archive.SnapshotName: db, "machine.yaml": setup} {
		write(t, filepath.Join(dir, name), content)
		var err error
		if hashes[name], err = files.Hash(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var packed bytes.Buffer
	if err := archive.Write(&packed, archive.Contents{Format: archive.Form, Files: hashes}, filepath.Join(dir, archive.SnapshotName), dir); err != nil {
		t.Fatal(err)
	}
	elsewhere := packed.Bytes()
	for name, row := range map[string]struct {
		data   []byte
		second string // address of the machine's second interface
		want   string
	}{
		"OtherAddress":  {elsewhere, "", "give it that address first"},
		"SecondAddress": {elsewhere, "192.0.2.99", "etcdutl is not installed"}, // the next check
		"CutOff":        {elsewhere[:len(elsewhere)/2], "", "nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			host, cfg := newHost(t)
			host.second, host.missing = row.second, []string{"etcdutl"}
			file := cfg.at("/backup")
			write(t, file, string(row.data))
			write(t, cfg.at(etcdData, "member"), "precious")
			before := tree(t, cfg.Root)
			err := Restore(t.Context(), cfg, host, file)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
			if diff := cmp.Diff(before, tree(t, cfg.Root)); diff != "" {
				t.Errorf("files changed:\n%s", diff)
			}
			if len(host.ran) > 0 {
				t.Errorf("ran %v", host.ran)
			}
		})
	}
}
