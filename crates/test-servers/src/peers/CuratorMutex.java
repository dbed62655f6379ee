// Curator's InterProcessMutex, InterProcessReadWriteLock and InterProcessSemaphoreV2, told what to do by lines on standard
// input: see peers.rs. Its argument is where the servers are.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collection;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryNTimes;

public class CuratorMutex {
    private static CuratorFramework client;

    private static CuratorFramework connect(String servers) {
        CuratorFramework made = CuratorFrameworkFactory.newClient(servers, 15_000, 5_000, new RetryNTimes(20, 200));
        made.start();
        return made;
    }

    public static void main(String[] arguments) throws Exception {
        client = connect(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        java.util.concurrent.BlockingQueue<String> orders = new java.util.concurrent.LinkedBlockingQueue<>();
        Thread main = new Thread(() -> obey(orders, arguments[0]));
        main.setDaemon(true);
        main.start();
        for (String order = lines.readLine(); order != null; order = lines.readLine()) {
            orders.add(order);
        }
        // Whoever waits for a lock then gives up: with the session its nodes go.
        client.close();
        System.exit(0);
    }

    private static void obey(java.util.concurrent.BlockingQueue<String> orders, String servers) {
        InterProcessMutex mutex = null;
        InterProcessSemaphoreV2 semaphore = null;
        Collection<Lease> permits = null;
        for (int number = 0; true; number++) {
            try {
                String[] words = orders.take().split(" ");
                if (words[0].equals("read") || words[0].equals("write")) {
                    InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, words[1]);
                    mutex = words[0].equals("read") ? both.readLock() : both.writeLock();
                    mutex.acquire();
                    System.out.println("locked");
                } else if (words[0].equals("permits")) {
                    semaphore = new InterProcessSemaphoreV2(client, words[1], Integer.parseInt(words[3]));
                    permits = semaphore.acquire(Integer.parseInt(words[2]));
                    System.out.println("locked");
                } else if (words[0].equals("give")) {
                    semaphore.returnAll(permits);
                    System.out.println("unlocked");
                } else if (words[0].equals("lock")) {
                    mutex = new InterProcessMutex(client, words[1]);
                    // Now and then it asks all others to let go, by a write to their nodes, which none of ours obeys.
                    if (number % 8 == 0) {
                        for (String node : mutex.getParticipantNodes()) {
                            Revoker.attemptRevoke(client, node);
                        }
                    }
                    mutex.acquire();
                    System.out.println("locked");
                } else {
                    mutex.release();
                    System.out.println("unlocked");
                }
            } catch (Exception error) {
                client.close();
                client = connect(servers);
                System.out.println("failed " + error);
            }
        }
    }
}
