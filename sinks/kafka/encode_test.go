package kafka_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// TestMurmur2 uses the test vectors of Kafka's Java client.
func TestMurmur2(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		const partitions = 1009
		if got, want := kafka.PartitionOf(key, partitions), int(want&0x7fffffff)%partitions; got != want {
			t.Errorf("the partition of %q is %d, want %d", key, got, want)
		}
	}
}

// TestPartitionsMatchFranzGo compares the partitions of random keys of all lengths
// with those of franz-go.
func TestPartitionsMatchFranzGo(t *testing.T) {
	t.Parallel()
	const partitions = 97
	other := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	for length := 1; length <= 300; length++ {
		key := make([]byte, length)
		for i := range key {
			key[i] = byte(rand.Uint32())
		}
		got := kafka.PartitionOf(string(key), partitions)
		if want := other.Partition(&kgo.Record{Key: key}, partitions); got != want {
			t.Errorf("franz-go has partition %d for %x, we %d", want, key, got)
		}
	}
}

// TestEncodingMatchesKafkaGo compares record batches byte by byte with those of
// kafka-go.
func TestEncodingMatchesKafkaGo(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli()
	for name, how := range map[string]compress.Compression{"none": compress.None, "gzip": compress.Gzip, "snappy": compress.Snappy, "lz4": compress.Lz4, "zstd": compress.Zstd} {
		times := []int64{start, start - 70000, start + 1<<33, start}
		keys := []string{"k", "", "key \x00\xff", "k"}
		values := [][]byte{[]byte("v"), nil, {}, bytes.Repeat([]byte("0123456789"), 30000)}
		got, err := kafka.Plain(how, times, keys, values, "name", "value")
		if err != nil {
			t.Fatal(err)
		}
		want := libraryBatch(t, how, times, keys, values)
		if how != compress.None {
			got, want = unpacked(t, got), unpacked(t, want) // codecs may split their input differently
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, not kafka-go's %d", name, len(got), len(want))
		}
	}
}

func libraryBatch(t *testing.T, how compress.Compression, times []int64, keys []string, values [][]byte) []byte {
	t.Helper()
	records := make([]protocol.Record, len(times))
	for i := range times {
		records[i] = protocol.Record{Time: time.UnixMilli(times[i]), Headers: []protocol.Header{{Key: "name", Value: []byte("value")}}}
		if keys[i] != "" {
			records[i].Key = protocol.NewBytes([]byte(keys[i]))
		}
		if values[i] != nil {
			records[i].Value = protocol.NewBytes(values[i])
		}
	}
	var buffer bytes.Buffer
	set := protocol.RecordSet{Version: 2, Attributes: protocol.Attributes(how), Records: protocol.NewRecordReader(records...)}
	if _, err := set.WriteTo(&buffer); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// unpacked reads a batch with the library, which verifies its checksum, and writes it
// again without compression.
func unpacked(t *testing.T, batch []byte) []byte {
	t.Helper()
	var set protocol.RecordSet
	if _, err := set.ReadFrom(bytes.NewReader(batch)); err != nil {
		t.Fatal(err)
	}
	set.Attributes = 0
	var buffer bytes.Buffer
	if _, err := set.WriteTo(&buffer); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}
