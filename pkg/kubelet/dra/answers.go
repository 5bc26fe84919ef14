package dra

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// Bounds of what a driver may answer for a claim: the kubelet keeps it.
const (
	maxDevices = 256
	maxIDs     = 64 // CDI ids, or requests, of a device
	maxName    = 253
	maxMessage = 1024
)

// preparedDevices returns the devices in a driver's answer, by claim. An error means that
// the driver has not prepared the other claims. It is all that is returned if the driver
// answers for claims that it was not asked for.
func preparedDevices(asked []*drapb.Claim, res *drapb.NodePrepareResourcesResponse) (map[types.UID][]device, error) {
	if len(res.GetClaims()) > len(asked)-skipped(asked, res.GetClaims()) {
		return nil, errors.New("NodePrepareResources returned results for unknown ResourceClaims")
	}
	made := map[types.UID][]device{}
	var errs []error
	for _, c := range asked {
		answer, ok := res.GetClaims()[c.Uid]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("NodePrepareResources skipped ResourceClaim %s", c.Name))
		case answer.GetError() != "":
			errs = append(errs, fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %s", c.Name, shortened(answer.Error)))
		default:
			devices, err := devicesOf(answer)
			if err != nil {
				errs = append(errs, fmt.Errorf("NodePrepareResources of ResourceClaim %s: %w", c.Name, err))
				continue
			}
			made[types.UID(c.Uid)] = devices
		}
	}
	return made, errors.Join(errs...)
}

// unprepared returns the claims that a driver has unprepared, and an error for the others.
func unprepared(asked []*drapb.Claim, res *drapb.NodeUnprepareResourcesResponse) ([]types.UID, error) {
	var done []types.UID
	var errs []error
	for _, c := range asked {
		answer, ok := res.GetClaims()[c.Uid]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("NodeUnprepareResources skipped ResourceClaim %s", c.Name))
		case answer.GetError() != "":
			errs = append(errs, fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %s", c.Name, shortened(answer.Error)))
		default:
			done = append(done, types.UID(c.Uid))
		}
	}
	return done, errors.Join(errs...)
}

// skipped counts the claims without an answer.
func skipped[T any](asked []*drapb.Claim, answers map[string]T) int {
	n := 0
	for _, c := range asked {
		if _, ok := answers[c.Uid]; !ok {
			n++
		}
	}
	return n
}

func shortened(message string) string {
	if len(message) > maxMessage {
		return strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
	}
	return message
}

func devicesOf(answer *drapb.NodePrepareResourceResponse) ([]device, error) {
	if n := len(answer.GetDevices()); n > maxDevices {
		return nil, fmt.Errorf("%d devices are more than %d", n, maxDevices)
	}
	var out []device
	for _, d := range answer.GetDevices() {
		if err := checkDevice(d); err != nil {
			return nil, err
		}
		out = append(out, device{Pool: d.GetPoolName(), Name: d.GetDeviceName(), Share: d.GetShareId(), Requests: d.GetRequestNames(), CDI: d.GetCdiDeviceIds()})
	}
	return out, nil
}

func checkDevice(d *drapb.Device) error {
	if len(d.GetRequestNames()) > maxIDs || len(d.GetCdiDeviceIds()) > maxIDs {
		return fmt.Errorf("a device has more than %d requests or CDI ids", maxIDs)
	}
	names := append([]string{d.GetPoolName(), d.GetDeviceName(), d.GetShareId()}, d.GetRequestNames()...)
	for _, name := range names {
		if len(name) > maxName {
			return fmt.Errorf("a name is longer than %d characters", maxName)
		}
	}
	for _, id := range d.GetCdiDeviceIds() {
		if !validID(id) {
			return fmt.Errorf("%q is not a fully qualified CDI device name", shortened(id))
		}
	}
	return nil
}

// validID reports whether text is a CDI id: vendor/class=device.
func validID(text string) bool {
	kind, name, ok := strings.Cut(text, "=")
	vendor, class, both := strings.Cut(kind, "/")
	return ok && both && len(text) <= 3*maxName &&
		validPart(vendor, letter, "_-.") && validPart(class, letter, "_-") && validPart(name, alphanumeric, "_-.:")
}

// validPart reports whether text begins with a character of first, ends with a letter or
// a digit, and has only these and those of inner.
func validPart(text string, first func(byte) bool, inner string) bool {
	if text == "" || !first(text[0]) || !alphanumeric(text[len(text)-1]) {
		return false
	}
	for i := range len(text) {
		if !alphanumeric(text[i]) && strings.IndexByte(inner, text[i]) < 0 {
			return false
		}
	}
	return true
}

func letter(b byte) bool { return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' }

func alphanumeric(b byte) bool { return letter(b) || '0' <= b && b <= '9' }
