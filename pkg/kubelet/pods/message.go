package pods

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// The limits of a termination message, as documented by Kubernetes.
const (
	maxMessageBytes  = 4096
	maxFallbackBytes = 2048
	maxFallbackLines = 80
)

// terminationMessage returns the message of an exited container: the content of
// its message file or, if its policy is FallbackToLogsOnError and it failed
// without one, the end of its log.
func terminationMessage(s *runtimeapi.ContainerStatus) string {
	fallback := s.Annotations[cri.AnnotationMessagePolicy] == string(corev1.TerminationMessageFallbackToLogsOnError) && s.ExitCode != 0
	inside := s.Annotations[cri.AnnotationMessagePath]
	for _, m := range s.Mounts {
		if inside == "" || m.ContainerPath != inside {
			continue
		}
		data, err := tail(m.HostPath, maxMessageBytes)
		if err == nil && (len(data) > 0 || !fallback) {
			return strings.ToValidUTF8(string(data), "\uFFFD")
		}
	}
	if fallback {
		return lastLogLines(s.LogPath)
	}
	return ""
}

// tail returns the last n bytes of a regular file. It does not follow links and
// does not block on pipes, which a container may have put there.
func tail(path string, n int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	if st.Size() > n {
		if _, err := f.Seek(-n, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, n))
}

// lastLogLines returns the text at the end of a log in the CRI format ("time
// stream tag text").
func lastLogLines(path string) string {
	data, err := tail(path, 4*maxFallbackBytes+64*maxFallbackLines)
	if err != nil {
		return ""
	}
	var lines []string
	scan := bufio.NewScanner(bytes.NewReader(data))
	scan.Buffer(nil, len(data)+1)
	for scan.Scan() {
		if text, ok := logText(scan.Text()); ok {
			lines = append(lines, text)
		}
	}
	if len(lines) > maxFallbackLines {
		lines = lines[len(lines)-maxFallbackLines:]
	}
	text := strings.Join(lines, "")
	if len(text) > maxFallbackBytes {
		text = text[len(text)-maxFallbackBytes:]
	}
	return strings.ToValidUTF8(text, "")
}

// logText returns the text of one record of a CRI log, with a newline unless the
// record is partial.
func logText(line string) (string, bool) {
	parts := strings.SplitN(line, " ", 4)
	if len(parts) != 4 {
		return "", false
	}
	if tag, _, _ := strings.Cut(parts[2], ":"); tag == "P" {
		return parts[3], true
	}
	return parts[3] + "\n", true
}
