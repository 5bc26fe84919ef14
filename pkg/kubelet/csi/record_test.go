package csi

import (
	"context"
	"testing"
)

// Measure measures all volumes of the test's driver now.
func (d *Driver) Measure(ctx context.Context) {
	var all []*published
	for _, volumes := range d.measured.pods {
		for _, p := range volumes {
			all = append(all, p)
		}
	}
	d.measureAll(ctx, "disks.example.com", all)
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"specVolID":"pv","volumeHandle":"h","driverName":"d"}`))
	f.Add([]byte(`{`))
	f.Add([]byte(`{"driverName":"d"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord(data)
		if err == nil && (r.Driver == "" || r.Handle == "") {
			t.Errorf("a record without a driver or a volume: %+v", r)
		}
	})
}
