package csi

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// recordFile is upstream's name of the file with a record.
const recordFile = "vol_data.json"

// record is what a restarted kubelet has to know of a volume of a pod, or of a staged one,
// in upstream's format.
type record struct {
	Volume     string                        `json:"specVolID,omitempty"` // the persistent volume, or the pod's volume
	Handle     string                        `json:"volumeHandle"`
	Driver     string                        `json:"driverName"`
	Node       string                        `json:"nodeName,omitempty"`
	Attachment string                        `json:"attachmentID,omitempty"` // the VolumeAttachment; "": the driver does not attach
	Lifecycle  storagev1.VolumeLifecycleMode `json:"volumeLifecycleMode,omitempty"`
	Mode       corev1.PersistentVolumeMode   `json:"volumeMode,omitempty"` // "": Filesystem; not in upstream's format
}

// id identifies a volume on the node.
type id struct{ driver, handle string }

func (r *record) id() id { return id{r.Driver, r.Handle} }

func (r *record) persistent() bool { return r.Lifecycle == storagev1.VolumeLifecyclePersistent }

func (r *record) device() bool { return r.Mode == corev1.PersistentVolumeBlock }

// readRecord reads the record in a directory.
func readRecord(dir string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return nil, err
	}
	r, err := parseRecord(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, recordFile), err)
	}
	return r, nil
}

func parseRecord(data []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	if r.Driver == "" || r.Handle == "" {
		return nil, fmt.Errorf("the record names no driver or no volume")
	}
	return r, nil
}

// write writes the record into a directory, which it creates. A crash leaves the old
// record or the new one.
func (r *record) write(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, recordFile)
	f, err := os.OpenFile(file+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (d *Driver) pluginDir() string { return filepath.Join(d.Root, "plugins", "kubernetes.io", "csi") }

const (
	devicesDir = "volumeDevices"
	mountDir   = "mount"
	globalDir  = "globalmount"
)

// place is where a volume is staged.
type place struct {
	dir    string // of the record
	target string // of NodeStageVolume
}

// stagePlace returns where a volume is staged.
func (d *Driver) stagePlace(r *record) place {
	if r.device() {
		devices := filepath.Join(d.pluginDir(), devicesDir)
		return place{filepath.Join(devices, r.Volume, "data"), filepath.Join(devices, "staging", r.Volume)}
	}
	dir := filepath.Join(d.pluginDir(), r.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(r.Handle))))
	return place{dir, filepath.Join(dir, globalDir)}
}

// target returns where a volume is published to a pod; dir is the pod's directory for it.
func (d *Driver) target(r *record, dir string, pod string) string {
	if r.device() {
		return filepath.Join(d.pluginDir(), devicesDir, "publish", r.Volume, pod)
	}
	return filepath.Join(dir, mountDir)
}
