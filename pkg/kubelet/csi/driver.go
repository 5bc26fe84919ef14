package csi

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/intree"
	"podium/pkg/kubelet/csi/keylock"
	"podium/pkg/kubelet/plugins"
	"podium/pkg/kubelet/volumes"
	"podium/pkg/scheme"
)

// name is the name of the directories of CSI volumes.
const name = "kubernetes.io~csi"

// API reads and writes the objects that CSI volumes need.
type API interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
	PatchClaimStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.PersistentVolumeClaim, error)

	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	PatchNode(ctx context.Context, name string, patch []byte) error // a merge patch
	GetCSINode(ctx context.Context, name string) (*storagev1.CSINode, error)
	CreateCSINode(ctx context.Context, n *storagev1.CSINode) error
	UpdateCSINode(ctx context.Context, n *storagev1.CSINode) error
}

// Node is the node's own object.
type Node interface {
	// Await blocks until the Node, as the API has it, satisfies a condition, or ctx ends.
	// The condition must not block.
	Await(ctx context.Context, ok func(*corev1.Node) bool) error
	// Check asks for the node's status to be written soon.
	Check()
}

// Recorder records events.
type Recorder interface {
	Event(obj scheme.Object, eventType, reason, message string)
}

// Config holds the dependencies of a Driver.
type Config struct {
	Root     string // the kubelet's --root-dir
	NodeName string
	API      API
	Node     Node
	Mounter  volumes.Mounter // nil: volumes.Kernel
	Events   Recorder
	Log      *slog.Logger
	Metrics  *Metrics // nil: none
	Dialer   plugins.Dialer
	InTree   map[string]spec.NodeServer // the drivers of this process, by name; plugins cannot replace them

	CallTimeout time.Duration // of a call to a driver; 0: two minutes, as upstream
}

// Driver is the volumes.Driver of all CSI drivers. It is safe for concurrent use.
type Driver struct {
	Config

	mu      sync.Mutex
	drivers map[string]plugins.Plugin // registered ones, by name

	node  sync.Mutex        // held while the CSINode and the Node are written
	locks keylock.Locks[id] // one call at a time stages, publishes, unpublishes or unstages a volume
	uses  uses

	measured measured
}

var _ volumes.PersistentDriver = (*Driver)(nil)
var _ plugins.Handler = (*Driver)(nil)

// New returns a Driver that knows the volumes which an earlier process has set up.
func New(cfg Config) (*Driver, error) {
	if cfg.Mounter == nil {
		cfg.Mounter = volumes.Kernel{}
	}
	if cfg.CallTimeout == 0 {
		cfg.CallTimeout = 2 * time.Minute
	}
	d := &Driver{Config: cfg, drivers: map[string]plugins.Plugin{}, uses: newUses(), measured: measured{pods: map[types.UID]map[string]*published{}}}
	if err := d.recover(); err != nil {
		return nil, fmt.Errorf("find the CSI volumes on disk: %w", err)
	}
	return d, nil
}

// Name returns the name of the directories of CSI volumes.
func (*Driver) Name() string { return name }

// Supports reports whether the volume is an inline one of a CSI driver, or of a driver of
// this process.
func (*Driver) Supports(v *corev1.Volume) bool { return v.CSI != nil || v.NFS != nil || v.ISCSI != nil }

// SupportsPersistent reports whether the volume is one of a CSI driver, or of a driver of
// this process.
func (*Driver) SupportsPersistent(pv *corev1.PersistentVolume) bool { return intree.Source(pv) != nil }

// service is a connection to a registered driver.
type service struct {
	spec.NodeClient
	conn  io.Closer                                    // nil: none
	calls map[spec.NodeServiceCapability_RPC_Type]bool // what it can do; nil before learn
}

func (s *service) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

// open connects to a registered driver.
func (d *Driver) open(driver string) (*service, error) {
	if server, ok := d.InTree[driver]; ok {
		return &service{NodeClient: spec.NewNodeClient(inProcess{server, driver, d.Metrics, d.CallTimeout})}, nil
	}
	d.mu.Lock()
	p, ok := d.drivers[driver]
	d.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", driver)
	}
	return d.dial(p)
}

func (d *Driver) dial(p plugins.Plugin) (*service, error) {
	conn, err := d.Dialer.Dial(p.Endpoint, grpc.WithUnaryInterceptor(d.Metrics.intercept(p.Name, d.CallTimeout)))
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver %s at %s: %w", p.Name, p.Endpoint, err)
	}
	return &service{NodeClient: spec.NewNodeClient(conn), conn: conn}, nil
}

// learn asks the driver what it can do.
func (s *service) learn(ctx context.Context) error {
	resp, err := s.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
	if err != nil {
		return fmt.Errorf("NodeGetCapabilities: %w", err)
	}
	s.calls = map[spec.NodeServiceCapability_RPC_Type]bool{}
	for _, c := range resp.Capabilities {
		s.calls[c.GetRpc().GetType()] = true
	}
	return nil
}

func (s *service) stages() bool {
	return s.calls[spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME]
}

// object returns the CSIDriver of a driver, nil if there is none.
func (d *Driver) object(ctx context.Context, driver string) (*storagev1.CSIDriver, error) {
	if obj := intree.Driver(driver); obj != nil {
		return obj, nil
	}
	obj, err := d.API.CSIDriver(ctx, driver)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CSIDriver %s: %w", driver, err)
	}
	return obj, nil
}
