// Curator's InterProcessMutex, InterProcessReadWriteLock and InterProcessSemaphoreV2, told what to do by lines on standard
// input: see peers.rs. Its arguments are where the servers are, and for how many milliseconds its session lasts.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

public class CuratorMutex {
    private static volatile CuratorFramework client;
    private static InterProcessMutex mutex;
    private static InterProcessSemaphoreV2 semaphore;
    private static Collection<Lease> permits;
    private static String semaphores;
    private static long asked;
    // Of servers whose tick is half a second, in milliseconds.
    private static final long HALF_A_TICK = 250;

    private static CuratorFramework connect(String servers, int session) {
        CuratorFramework made = CuratorFrameworkFactory.newClient(servers, session, 5_000, new RetryNTimes(20, 200));
        made.start();
        return made;
    }

    public static void main(String[] arguments) throws Exception {
        int session = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 15_000;
        client = connect(arguments[0], session);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        BlockingQueue<String> orders = new LinkedBlockingQueue<>();
        Thread main = new Thread(() -> obey(orders, arguments[0], session));
        main.setDaemon(true);
        main.start();
        for (String order = lines.readLine(); order != null; order = lines.readLine()) {
            orders.add(order);
        }
        // Whoever waits for a lock then gives up: with the session its nodes go.
        client.close();
        System.exit(0);
    }

    private static void obey(BlockingQueue<String> orders, String servers, int session) {
        while (true) {
            String[] words = {""};
            try {
                words = orders.take().split(" ");
                System.out.println(obey(words));
            } catch (Exception error) {
                if (!words[0].equals("check")) {
                    client.close();
                    client = connect(servers, session);
                }
                System.out.println("failed " + error);
            }
        }
    }

    private static String obey(String[] words) throws Exception {
        asked += 1;
        switch (words[0]) {
            case "lock", "revoke" -> {
                byte[] own = own();
                InterProcessMutex wanted = new InterProcessMutex(client, words[1]) {
                    @Override
                    protected byte[] getLockNodeBytes() {
                        return own;
                    }
                };
                // It asks ours to let go, by a write to our nodes, which no client of ours obeys.
                if (words[0].equals("revoke")) {
                    for (String node : wanted.getParticipantNodes()) {
                        revoke(node);
                    }
                }
                return acquire(wanted);
            }
            case "read" -> {
                return acquire(new InterProcessReadWriteLock(client, words[1], own()).readLock());
            }
            case "write" -> {
                return acquire(new InterProcessReadWriteLock(client, words[1], own()).writeLock());
            }
            case "permits" -> {
                semaphore = new InterProcessSemaphoreV2(client, words[1], Integer.parseInt(words[3]));
                permits = semaphore.acquire(Integer.parseInt(words[2]));
                semaphores = words[1];
                mutex = null;
                return "locked";
            }
            case "give" -> {
                semaphore.returnAll(permits);
                permits = null;
                return "unlocked";
            }
            case "check" -> {
                return check();
            }
            default -> {
                mutex.release();
                return "unlocked";
            }
        }
    }

    private static String acquire(InterProcessMutex wanted) throws Exception {
        wanted.acquire();
        mutex = wanted;
        return "locked " + new String(own());
    }

    // What its node shows of who asked.
    private static byte[] own() {
        return ("theirs-" + ProcessHandle.current().pid() + "-" + asked).getBytes();
    }

    private static void revoke(String node) throws Exception {
        try {
            // The write would replace the name by which another library's holder is known.
            if (new String(client.getData().forPath(node)).startsWith("theirs-")) {
                return;
            }
            Revoker.attemptRevoke(client, node);
        } catch (KeeperException.NoNodeException gone) {
            // It has let go.
        }
    }

    // A write that changes nothing: who commits it has the session, which may be another one than that of what was taken.
    private static String check() throws Exception {
        ZooKeeper session = client.getZookeeperClient().getZooKeeper();
        if (!commits()) {
            return "lost";
        }
        // The leader hears of that from a follower within half a tick, or does not commit what comes after.
        Thread.sleep(HALF_A_TICK);
        if (!commits()) {
            return "lost";
        }
        for (String node : nodes()) {
            Stat seen = client.checkExists().forPath(node);
            if (seen == null) {
                return "lost";
            }
            if (seen.getEphemeralOwner() != session.getSessionId()) {
                return "failed";
            }
        }
        return "held " + session.getSessionTimeout();
    }

    private static boolean commits() throws Exception {
        try {
            for (String node : nodes()) {
                client.inTransaction().check().forPath(node).and().commit();
            }
            return true;
        } catch (KeeperException.NoNodeException gone) {
            return false;
        }
    }

    private static List<String> nodes() throws Exception {
        if (mutex == null) {
            return permits.stream().map(permit -> semaphores + "/leases/" + permit.getNodeName()).toList();
        }
        Method path = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        path.setAccessible(true);
        return List.of((String) path.invoke(mutex));
    }
}
