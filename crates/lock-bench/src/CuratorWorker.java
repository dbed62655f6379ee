// A worker of the benchmark with Curator's InterProcessMutex: --worker, its kind, an address, the start and the end by the machine's
// clock in nanoseconds, and two lengths of time that it has no use for.

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class CuratorWorker {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[2], new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        InterProcessMutex lock = new InterProcessMutex(client, "/bench/job");
        long start = Long.parseLong(arguments[3]), end = Long.parseLong(arguments[4]);
        StringBuilder turns = new StringBuilder();
        // The machine's clock, as in the other workers.
        Thread.sleep(Math.max(0, (start - System.nanoTime()) / 1_000_000));
        while (System.nanoTime() < end) {
            long asked = System.nanoTime();
            lock.acquire();
            long had = System.nanoTime(), gave = System.nanoTime();
            lock.release();
            turns.append(asked).append(' ').append(had).append(' ').append(gave).append('\n');
        }
        client.close();
        System.out.print(turns);
    }
}
