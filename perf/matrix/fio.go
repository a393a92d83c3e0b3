package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// fioFileMiB is the size of fio's file, which is filled before anything is measured.
const fioFileMiB = 128

// fio writes blocks and syncs each, one after the other, into blocks that were written before, and returns the bytes per second. It is
// false when fio is not installed.
func fio(ctx context.Context, dir string, kib int, d time.Duration) (bytesPerSecond float64, installed bool, err error) {
	if _, err := exec.LookPath("fio"); err != nil {
		return 0, false, nil
	}
	name := filepath.Join(dir, "fio")
	args := []string{
		"--name=ceiling", "--filename=" + name, "--rw=write", fmt.Sprintf("--bs=%dk", kib), fmt.Sprintf("--size=%dm", fioFileMiB), "--overwrite=1",
		"--ioengine=psync", "--fdatasync=1", "--time_based", fmt.Sprintf("--runtime=%dms", d.Milliseconds()), "--output-format=json",
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "fio", args...)
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return 0, true, fmt.Errorf("fio of %d KiB: %w\n%s", kib, err, stderr.String())
	}
	rate, err := parseFio(text)
	return rate, true, err
}

// parseFio returns the bytes per second of fio's only job. What fio warns about stands before the JSON.
func parseFio(text []byte) (float64, error) {
	var result struct {
		Jobs []struct {
			Error int `json:"error"`
			Write struct {
				Bytes        float64 `json:"io_bytes"`
				Milliseconds float64 `json:"runtime"`
			} `json:"write"`
		} `json:"jobs"`
	}
	start := bytes.IndexByte(text, '{')
	if start < 0 {
		return 0, fmt.Errorf("fio printed no JSON: %.200s", text)
	}
	if err := json.Unmarshal(text[start:], &result); err != nil {
		return 0, fmt.Errorf("what fio printed: %w", err)
	}
	if len(result.Jobs) != 1 || result.Jobs[0].Error != 0 || !(result.Jobs[0].Write.Bytes > 0) || !(result.Jobs[0].Write.Milliseconds > 0) {
		return 0, fmt.Errorf("fio's jobs are %+v, want one that has written", result.Jobs)
	}
	w := result.Jobs[0].Write
	return w.Bytes / w.Milliseconds * 1e3, nil
}
