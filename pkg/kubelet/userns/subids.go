package userns

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
)

// owner is the user whose subordinate ids pods get; as upstream.
const owner = "kubelet"

// NodeRange returns the ids for pods: the subordinate ids of the user kubelet
// according to getsubids(1), or the default if the user or the program does not
// exist. It runs getsubids and blocks until it ends.
func NodeRange(ctx context.Context, maxPods int) (Range, error) {
	var unknown user.UnknownUserError
	if _, err := user.Lookup(owner); errors.As(err, &unknown) {
		return DefaultRange(maxPods), nil
	} else if err != nil {
		return Range{}, fmt.Errorf("look up user %s: %w", owner, err)
	}
	program, err := exec.LookPath("getsubids")
	if errors.Is(err, exec.ErrNotFound) {
		return DefaultRange(maxPods), nil
	}
	if err != nil {
		return Range{}, fmt.Errorf("look up getsubids: %w", err)
	}
	uids, err := exec.CommandContext(ctx, program, owner).Output()
	if err != nil {
		return Range{}, fmt.Errorf("getsubids %s: %w", owner, err)
	}
	gids, err := exec.CommandContext(ctx, program, "-g", owner).Output()
	if err != nil {
		return Range{}, fmt.Errorf("getsubids -g %s: %w", owner, err)
	}
	if string(uids) != string(gids) {
		return Range{}, fmt.Errorf("user %s has other subordinate user ids than group ids", owner)
	}
	return parseSubIDs(string(uids), maxPods)
}

// parseSubIDs parses a single line "0: kubelet 65536 7208960". The range must begin
// after the node's own ids and have Length ids for each pod.
func parseSubIDs(text string, maxPods int) (Range, error) {
	fields := strings.Fields(text)
	if len(fields) != 4 || strings.Count(strings.TrimSpace(text), "\n") > 0 {
		return Range{}, fmt.Errorf("getsubids: want one range, not %q", text)
	}
	first, errFirst := strconv.ParseUint(fields[2], 10, 32)
	length, errLength := strconv.ParseUint(fields[3], 10, 32)
	if err := errors.Join(errFirst, errLength); err != nil {
		return Range{}, fmt.Errorf("getsubids: %w", err)
	}
	switch {
	case first < Length || first%Length != 0:
		return Range{}, fmt.Errorf("subordinate ids of user %s begin at %d: want a multiple of %d from %[3]d on", owner, first, Length)
	case length%Length != 0 || length < uint64(maxPods)*Length:
		return Range{}, fmt.Errorf("user %s has %d subordinate ids: want a multiple of %d, for %d pods", owner, length, Length, maxPods)
	case first+length > 1<<32:
		return Range{}, fmt.Errorf("subordinate ids of user %s exceed 32 bits", owner)
	}
	return Range{First: uint32(first), Length: uint32(length)}, nil
}
