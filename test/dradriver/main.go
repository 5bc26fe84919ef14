// Dradriver is a driver of devices on upstream's library for such drivers: it publishes the
// devices of a node, and prepares the claims that the kubelet sends it. With a folder of CDI
// specifications a container finds the names of its devices in the variable DRA_DEVICES; for
// runtimes without CDI the devices have none.
//
// It reads orders from its standard input, one a line, and says on its standard output what
// it does:
//
//	refuse TEXT                 the next claims are not prepared, and the kubelet is told TEXT
//	accept                      claims are prepared again
//	unhealthy NAME TEXT         the device NAME is not healthy, TEXT says why
//	healthy NAME                it is healthy, as all devices are at the start
//	attach NAMESPACE/CLAIM      the devices of the claim are attached
//	break NAMESPACE/CLAIM TEXT  they cannot be attached, TEXT says why
//
// With -attach, pods are bound to nodes only when their devices are attached.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

func main() {
	d := &driver{changed: make(chan struct{})}
	kubeconfig := flag.String("kubeconfig", "", "file with the API server's address and a credential")
	root := flag.String("root", "/var/lib/kubelet", "the kubelet's folder")
	flag.StringVar(&d.name, "name", "", "the driver's name")
	flag.StringVar(&d.node, "node", "", "the node's name, and that of the pool")
	flag.StringVar(&d.cdi, "cdi", "", "folder of CDI specifications; none: devices without CDI")
	count := flag.Int("devices", 2, "number of devices")
	flag.IntVar(&d.first, "first", 0, "number of the first device")
	flag.BoolVar(&d.attach, "attach", false, "devices have to be attached before pods are bound")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := d.run(ctx, *kubeconfig, *root, *count); err != nil {
		fmt.Fprintln(os.Stderr, "dradriver:", err)
		os.Exit(1)
	}
}

// Binding conditions of devices.
const (
	attached = "Attached"
	broken   = "Broken"
)

type driver struct {
	name, node, cdi string
	first           int
	attach          bool
	api             kubernetes.Interface

	mu      sync.Mutex
	refusal string
	devices []string
	faults  map[string]string // of unhealthy devices, by name
	changed chan struct{}     // closed when faults changes
}

func (d *driver) run(ctx context.Context, kubeconfig, root string, count int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	d.api, err = kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data := filepath.Join(root, "plugins", d.name)
	for _, dir := range []string{data, d.cdi} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	d.faults = map[string]string{}
	for i := range count {
		d.devices = append(d.devices, fmt.Sprintf("card-%d", d.first+i))
	}
	h, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(d.name), kubeletplugin.NodeName(d.node), kubeletplugin.KubeClient(d.api),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(root, "plugins_registry")))
	if err != nil {
		return fmt.Errorf("start the driver: %w", err)
	}
	defer h.Stop()
	pools := map[string]resourceslice.Pool{d.node: {Slices: []resourceslice.Slice{{Devices: d.published()}}}}
	if err := h.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
		return fmt.Errorf("publish the devices: %w", err)
	}
	go d.obey(ctx)
	<-ctx.Done()
	return nil
}

// published returns the devices as a ResourceSlice holds them.
func (d *driver) published() (out []resourcev1.Device) {
	for i, name := range d.devices {
		device := resourcev1.Device{
			Name:       name,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"index": {IntValue: new(int64(d.first + i))}},
		}
		if d.attach {
			device.BindingConditions, device.BindingFailureConditions = []string{attached}, []string{broken}
		}
		out = append(out, device)
	}
	return out
}

// obey does what the lines of the standard input say.
func (d *driver) obey(ctx context.Context) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		order, text, _ := strings.Cut(lines.Text(), " ")
		d.mu.Lock()
		switch order {
		case "refuse":
			d.refusal = text
		case "accept":
			d.refusal = ""
		case "unhealthy", "healthy":
			d.judge(order == "healthy", text)
		case "attach":
			d.condition(ctx, text, metav1.Condition{Type: attached, Message: "the fabric has connected it"})
		case "break":
			claim, why, _ := strings.Cut(text, " ")
			d.condition(ctx, claim, metav1.Condition{Type: broken, Message: why})
		}
		d.mu.Unlock()
		fmt.Println("done", order)
	}
}

// condition makes a condition true of all devices of a claim, "NAMESPACE/NAME".
func (d *driver) condition(ctx context.Context, claim string, c metav1.Condition) {
	namespace, name, _ := strings.Cut(claim, "/")
	claims := d.api.ResourceV1().ResourceClaims(namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		got, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got.Status.Allocation == nil {
			return errors.New("the claim has no devices")
		}
		c.Status, c.Reason, c.LastTransitionTime = metav1.ConditionTrue, "Ordered", metav1.Now()
		got.Status.Devices = nil
		for _, r := range got.Status.Allocation.Devices.Results {
			got.Status.Devices = append(got.Status.Devices, resourcev1.AllocatedDeviceStatus{Driver: r.Driver, Pool: r.Pool, Device: r.Device, Conditions: []metav1.Condition{c}})
		}
		_, err = claims.UpdateStatus(ctx, got, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		d.HandleError(ctx, err, "set a condition of the devices of "+claim)
	}
}

// PrepareResourceClaims makes the devices of claims ready.
func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		out[c.UID] = d.prepare(c)
		fmt.Println("prepare", c.Namespace+"/"+c.Name)
	}
	return out, nil
}

func (d *driver) prepare(c *resourcev1.ResourceClaim) (r kubeletplugin.PrepareResult) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refusal != "" {
		return kubeletplugin.PrepareResult{Err: errors.New(d.refusal)}
	}
	var names []string
	for _, result := range c.Status.Allocation.Devices.Results {
		if result.Driver != d.name {
			continue
		}
		device := kubeletplugin.Device{Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device}
		if d.cdi != "" && len(names) == 0 {
			device.CDIDeviceIDs = []string{d.name + "/claim=" + string(c.UID)}
		}
		names = append(names, result.Device)
		r.Devices = append(r.Devices, device)
	}
	if d.cdi != "" {
		r.Err = d.write(c.UID, names)
	}
	return r
}

// write writes the CDI specification of a claim, which is one device of CDI.
func (d *driver) write(claim types.UID, names []string) error {
	type edits map[string][]string
	type device struct {
		Name  string `json:"name"`
		Edits edits  `json:"containerEdits"`
	}
	data, err := json.Marshal(map[string]any{
		"cdiVersion": "0.5.0", "kind": d.name + "/claim",
		"devices": []device{{string(claim), edits{"env": {"DRA_DEVICES=" + strings.Join(names, ",")}}}},
	})
	if err != nil {
		return err
	}
	temp := d.file(claim) + ".tmp"
	if err := os.WriteFile(temp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, d.file(claim))
}

func (d *driver) file(claim types.UID) string {
	return filepath.Join(d.cdi, d.name+"-"+string(claim)+".json")
}

// UnprepareResourceClaims undoes PrepareResourceClaims.
func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		out[c.UID] = nil
		if d.cdi != "" {
			if err := os.Remove(d.file(c.UID)); !errors.Is(err, os.ErrNotExist) {
				out[c.UID] = err
			}
		}
		fmt.Println("unprepare", c.Namespace+"/"+c.Name)
	}
	return out, nil
}

// HandleError prints what went wrong in the background.
func (d *driver) HandleError(_ context.Context, err error, msg string) {
	fmt.Fprintln(os.Stderr, "dradriver:", msg+":", err)
}

// judge records the health of a device, "NAME TEXT". d.mu is held.
func (d *driver) judge(healthy bool, text string) {
	name, fault, _ := strings.Cut(text, " ")
	if d.faults[name] = fault; healthy {
		delete(d.faults, name)
	}
	close(d.changed)
	d.changed = make(chan struct{})
}

// WatchHealthStatus reports the health of all devices, now and when it changes.
func (d *driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	for {
		report, changed := d.report()
		select {
		case reports <- report:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// report returns the health of all devices, and what is closed when it changes.
func (d *driver) report() (r kubeletplugin.DeviceHealthReport, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.devices {
		h := kubeletplugin.DeviceHealth{PoolName: d.node, DeviceName: name, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: time.Now(), HealthCheckTimeout: time.Hour}
		if fault, is := d.faults[name]; is {
			h.Health, h.Message = kubeletplugin.HealthStatusUnhealthy, fault
		}
		r.Devices = append(r.Devices, h)
	}
	return r, d.changed
}
